"""The trainer: a failure stays alone, the best epoch is selected, events come once, and what cannot train is refused.

What holds for every framework is in tests/goal_core/models/test_contract.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file

from goal_sweep.goal_core.basics.errors import (
    ChangedDataError,
    CollapsedError,
    ConfigError,
    DeviceError,
    FencedError,
    WeightsError,
)
from goal_sweep.goal_core.evaluation.retrieval import NonFiniteEmbeddingError, RetrievalRanks
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig
from goal_sweep.goal_core.training import Callback, EpochDone, StageConfig, TrainingDone, TrainingEvent, TrainingFailed
from goal_sweep.goal_core.training.cells import roster
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.few import few
from tests.helpers.tiny_models import clip_folder
from tests.helpers.training_cases import (
    FINETUNE,
    FROZEN,
    MODEL,
    XVLM,
    XVLM_DATA,
    XVLM_STAGE,
    PlainFolder,
    folders_of,
    same_weights,
    unit_of,
)

ONE_EPOCH = replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=())


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (NonFiniteEmbeddingError("image_emb is not\n finite"), "diverged", "image_emb is not finite"),
        (CollapsedError("too near"), "collapsed", "too near"),
        (OSError("disk full"), "storage", "OSError: disk full"),
        (MemoryError(), "memory", "MemoryError: no message"),
        (RuntimeError("DefaultCPUAllocator: not enough"), "memory", "RuntimeError: DefaultCPUAllocator: not enough"),
        (WeightsError("does not fit"), "inputs", "does not fit"),
        (ChangedDataError("another image"), "inputs", "another image"),
        (KeyError("x"), "error", "KeyError: 'x'"),
    ],
)
def test_a_failure_has_its_kind_and_one_line(error: Exception, kind: str, reason: str) -> None:
    failed = TrainingFailed.because_of("key", error)
    assert (failed.key, failed.kind, failed.reason) == ("key", kind, reason)
    assert type(error).__name__ in failed.trace


def test_a_training_that_another_attempt_owns_is_left_without_a_word(tmp_path: Path) -> None:
    class Fenced(PlainFolder):
        def write_metrics(self, records) -> None:
            raise FencedError("another attempt owns it")

    unit = unit_of("con/con", "lin/nca")
    alone, folders = folders_of(unit_of("con/con"), tmp_path / "alone"), folders_of(unit, tmp_path / "both")
    train_unit(unit_of("con/con"), alone)
    outcomes = train_unit(unit, {**folders, "lin-nca": Fenced(tmp_path / "fenced")})
    assert [outcome.key for outcome in outcomes] == ["con-con"]
    assert folders["con-con"].numbers() == alone["con-con"].numbers()
    assert "failed" not in (tmp_path / "fenced" / "log.txt").read_text()


ON_A_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class AskedToStop(Callback):
    """Wants the unit to stop from the n-th question on."""

    def __init__(self, question: int) -> None:
        self.asked, self._limit = 0, question

    def stopping(self) -> bool:
        self.asked += 1
        return self.asked >= self._limit


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.exhaustive), 13])
@pytest.mark.parametrize("stage", few([FROZEN, FINETUNE]), ids=lambda stage: stage.name)
def test_a_unit_stopped_wherever_it_is_asked_continues_to_the_same_bits(tmp_path: Path, stage: StageConfig, every: int):
    unit = unit_of("con/con", "lin/nca", stage=stage)
    unbroken, never = folders_of(unit, tmp_path / "unbroken"), AskedToStop(10**9)
    train_unit(unit, unbroken, never)
    assert never.asked > 20  # after the steps, and within the passes over the splits
    for question in range(1, never.asked + 1, every):
        folders = folders_of(unit, tmp_path / str(question))
        ended = train_unit(unit, folders, AskedToStop(question))
        assert len(ended) < 2
        train_unit(unit, folders)
        for key, folder in folders.items():
            assert folder.numbers() == unbroken[key].numbers(), question
            assert same_weights(folder, unbroken[key])


@pytest.mark.exhaustive
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
@pytest.mark.parametrize("kind", ["backbone", "chunks", "text encoder", "towers"])
def test_a_compiled_unit_continues_to_the_same_bits_and_agrees_with_one_that_is_not(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, device: str
) -> None:
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    towers = BackboneConfig(name="tiny", weights=str(clip_folder(tmp_path / "clip")))
    cases: dict[str, dict[str, Any]] = {
        "backbone": {},
        "chunks": {"stage": replace(FINETUNE, micro_batch=5)},
        "text encoder": {"data": XVLM_DATA, "model": XVLM},
        "towers": {"model": ModelConfig(framework="dual", backbone=towers, embed_dim=12)},
    }
    stage = replace(XVLM_STAGE, epochs=2) if kind == "text encoder" else FINETUNE
    settings = {"stage": stage, "device": device, "deterministic": device == "cuda", **cases[kind]}
    unit = unit_of("con/con", "lin/nca", compile="on", cache=tmp_path, **settings)
    plain, unbroken, stopped = (folders_of(unit, tmp_path / name) for name in ("plain", "unbroken", "stopped"))
    train_unit(replace(unit, compile="off"), plain)
    train_unit(unit, unbroken)
    assert train_unit(unit, stopped, AskedToStop(7)) == []
    train_unit(unit, stopped)
    for key in plain:
        assert stopped[key].numbers() == unbroken[key].numbers()
        assert same_weights(stopped[key], unbroken[key])
        ours, theirs = (load_file(folders[key].best()) for folders in (unbroken, plain))
        assert ours.keys() == theirs.keys()
        assert max(float((ours[name].float() - theirs[name].float()).abs().max()) for name in ours) < 3e-4


def test_a_collapsed_cell_fails_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pinned(self, inputs, batch, **shared):
        with torch.no_grad():
            self.encoder.heads.image.fc.weight.zero_()
            self.encoder.heads.image.fc.bias.fill_(1.0)
            self.encoder.heads.text.rnn.weight_ih_l0.zero_()
            self.encoder.heads.text.embed.weight.fill_(0.1)
        real(self, inputs, batch, **shared)

    real = CellTrainer.step
    monkeypatch.setattr(CellTrainer, "step", pinned)
    unit = unit_of("con/con", stage=replace(FROZEN, warmup_epochs=0, collapse_patience=4))
    (outcome,) = train_unit(unit, folders_of(unit, tmp_path))
    assert isinstance(outcome, TrainingFailed)
    assert outcome.kind == "collapsed"
    assert "for 4 steps" in outcome.reason


def test_the_best_epoch_is_that_of_the_split_that_selects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rsums = {"val": [10.0, 30.0, 20.0], "test": [5.0, 6.0, 7.0]}
    calls = dict.fromkeys(rsums, 0)
    ranks = RetrievalRanks(torch.zeros(3), torch.zeros(3))

    def recalls(encoder, split, embedded=None):
        found = rsums[split.name][min(calls[split.name], 2)]
        calls[split.name] += 1
        return {f"{split.name}/i2t_r1": found / 6, f"{split.name}/t2i_r1": found / 6, f"{split.name}/rsum": found}

    monkeypatch.setattr(roster, "recalls_of", recalls)
    monkeypatch.setattr(RetrievalRanks, "save", lambda ranks, path, **_: path.touch())
    monkeypatch.setattr(roster, "all_recalls_of", lambda *given: (recalls(*given), ranks))
    cases: list[tuple[Literal["val", "test"], int]] = [("val", 2), ("test", 3)]
    for select_on, best in cases:
        calls |= dict.fromkeys(rsums, 0)
        unit = unit_of("con/con", stage=replace(FROZEN, select_on=select_on))
        folders = folders_of(unit, tmp_path / select_on)
        (outcome,) = train_unit(unit, folders)
        assert isinstance(outcome, TrainingDone)
        assert outcome.result["best_epoch"] == best
        assert outcome.result["metrics"]["val/rsum"] == rsums["val"][best - 1]
        logged = [row.get("selection/test_rsum") for row in folders["con-con"].numbers()[:-1]]
        assert logged == (rsums["test"] if select_on == "test" else [None] * 3)


def test_a_cell_that_never_found_anything_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dict.fromkeys(("val/i2t_r1", "val/t2i_r1", "val/rsum"), 0.0)
    monkeypatch.setattr(roster, "recalls_of", lambda encoder, split, embedded: nothing)
    unit = unit_of("con/con")
    (outcome,) = train_unit(unit, folders_of(unit, tmp_path))
    assert isinstance(outcome, TrainingFailed)
    assert outcome.kind == "collapsed"
    assert "no val query has its match among the first ten" in outcome.reason


def test_events_come_once_for_each_cell_and_epoch(tmp_path: Path) -> None:
    heard: list[TrainingEvent] = []

    class Hear(Callback):
        def events(self, events) -> None:
            heard.extend(events)

    unit = unit_of("con/con", "lin/nca")
    train_unit(unit, folders_of(unit, tmp_path), Hear())
    epochs = [(event.key, event.record["epoch"]) for event in heard if isinstance(event, EpochDone)]
    assert sorted(epochs) == [(cell, epoch) for cell in ("con-con", "lin-nca") for epoch in (1, 2, 3)]
    assert [event.key for event in heard if isinstance(event, TrainingDone)] == ["con-con", "lin-nca"]


def test_finetune_starts_from_the_best_frozen_weights(tmp_path: Path) -> None:
    frozen = unit_of("con/con", stage=ONE_EPOCH)
    train_unit(frozen, folders := folders_of(frozen, tmp_path / "frozen"))
    stage = replace(FINETUNE, epochs=1)
    tune = unit_of("con/con", stage=stage, init={"con-con": folders["con-con"].best()})
    tuned, scratch = folders_of(tune, tmp_path / "finetune"), folders_of(tune, tmp_path / "scratch")
    train_unit(tune, tuned)
    train_unit(unit_of("con/con", stage=stage), scratch)
    assert tuned["con-con"].numbers() != scratch["con-con"].numbers()


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    small = unit_of("con/con", stage=ONE_EPOCH)
    train_unit(small, folders := folders_of(small, tmp_path / "small"))
    other = unit_of("con/con", model=replace(MODEL, embed_dim=8), init={"con-con": folders["con-con"].best()})
    (outcome,) = train_unit(other, folders_of(other, tmp_path / "other"))
    assert isinstance(outcome, TrainingFailed)
    assert "does not fit the model" in outcome.reason


def test_what_cannot_train_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        train_unit(unit_of("con/con", stage=replace(FROZEN, batch_size=1000)), {"con-con": PlainFolder(tmp_path)})
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="GPU"):
            train_unit(unit_of("con/con", device="cuda"), {"con-con": PlainFolder(tmp_path)})
    missing = replace(MODEL, backbone=BackboneConfig(name="test_resnet", weights="/nowhere.safetensors"))
    with pytest.raises(WeightsError, match="no weights file"):
        train_unit(unit_of("con/con", model=missing), {"con-con": PlainFolder(tmp_path)})
    assert list(tmp_path.iterdir()) == []
