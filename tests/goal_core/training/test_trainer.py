"""The trainer: cells side by side are the cells alone, a resumed cell is the unbroken one, a failure stays alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from goal_core.data.config import ImageConfig
from goal_core.errors import ConfigError, DeviceError, WeightsError
from goal_core.evaluation import NonFiniteEmbeddingError
from goal_core.models import BackboneConfig
from goal_core.training import StageConfig, TrainingDone, TrainingFailed, evaluate_checkpoint, train_unit
from goal_core.training import cell_trainer as cell_run_module
from goal_core.training import trainer as unit_module
from goal_core.training.failures import failure_kind
from goal_core.training.plan import SilentListener, TrainingEvent
from tests.helpers.training_cases import DATA, FROZEN, MODEL, PlainFolder, StopAt, StoppedError, folders_of, unit_of

OBJECTIVES = ("con/con", "sig-ms/cir", "lin-ms/nca")
VAL_RECALLS = [f"val/{key}" for key in ("i2t_r1", "t2i_r1", "rsum")]
FINETUNE = StageConfig(name="finetune", epochs=2, lr=1e-4, batch_size=16)


@pytest.mark.parametrize("stage", [FROZEN, FINETUNE], ids=lambda stage: stage.name)
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_cells_side_by_side_equal_cells_alone_bit_for_bit(tmp_path: Path, stage: StageConfig, augment: str) -> None:
    data = replace(DATA, image=ImageConfig(size=32, resize=32, augment=augment))
    together = unit_of(*OBJECTIVES, stage=stage, data=data)
    shared = folders_of(together, tmp_path / "trunk")
    train_unit(together, shared)
    for name in OBJECTIVES:
        alone = unit_of(name, stage=stage, data=data)
        folders = folders_of(alone, tmp_path / "none")
        train_unit(alone, folders)
        for cell_id, folder in folders.items():
            assert folder.numbers() == shared[cell_id].numbers()
            ours, theirs = (load_file(f.path("best.safetensors")) for f in (folder, shared[cell_id]))
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("stop", [1, 4, 5, 7, 10, 14])
def test_resumed_equals_unbroken(tmp_path: Path, stop: int) -> None:
    unit = unit_of("con/con", "sig-ms/cir", stage=replace(FROZEN, checkpoint_every=2))
    unbroken, broken = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "broken")
    train_unit(unit, unbroken)
    with pytest.raises(StoppedError):
        train_unit(unit, broken, StopAt(stop))
    train_unit(unit, broken)
    for cell_id, folder in broken.items():
        assert folder.numbers() == unbroken[cell_id].numbers()


def test_a_state_that_cannot_be_read_costs_the_epochs_and_not_the_cell(tmp_path: Path) -> None:
    unit = unit_of("con/con", "sig-ms/cir")
    unbroken, broken = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "broken")
    train_unit(unit, unbroken)
    with pytest.raises(StoppedError):
        train_unit(unit, broken, StopAt(12))
    state = broken["con-con"].path("last.safetensors")
    state.write_bytes(state.read_bytes()[:100])
    train_unit(unit, broken)
    for cell_id, folder in broken.items():
        assert folder.numbers() == unbroken[cell_id].numbers()
    assert "training begins anew" in broken["con-con"].path("log.txt").read_text()
    assert "training begins anew" not in broken["sig-ms-cir"].path("log.txt").read_text()


@pytest.mark.parametrize("damage", ["cut", "short"])
def test_damaged_kept_features_are_made_again(tmp_path: Path, damage: str) -> None:
    unit = unit_of("con/con", cache=tmp_path / "features")
    first, second = (folders_of(unit, tmp_path / name) for name in ("first", "second"))
    train_unit(unit, first)
    kept = {path: path.read_bytes() for path in (tmp_path / "features").iterdir()}
    for path, content in kept.items():
        if damage == "cut":
            path.write_bytes(content[:50])
        else:
            save_file({"features": load_file(path)["features"][:3]}, path)
    train_unit(unit, second)
    assert second["con-con"].numbers() == first["con-con"].numbers()
    assert {path: path.read_bytes() for path in (tmp_path / "features").iterdir()} == kept


def test_embeddings_without_numbers_are_a_divergence() -> None:
    assert failure_kind(NonFiniteEmbeddingError("image_emb is not finite")) == "diverged"


def test_cells_stopped_at_different_epochs_end_alike(tmp_path: Path) -> None:
    unit = unit_of("con/con", "lin/nca")
    unbroken, broken = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "broken")
    train_unit(unit, unbroken)
    with pytest.raises(StoppedError):
        train_unit(unit_of("con/con"), {"con-con": broken["con-con"]}, StopAt(12))
    train_unit(unit, broken)
    assert {key: folder.numbers() for key, folder in broken.items()} == {
        key: folder.numbers() for key, folder in unbroken.items()
    }


def test_a_diverging_cell_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = unit_of("con/con")
    reference = folders_of(healthy, tmp_path / "healthy")
    train_unit(healthy, reference)
    real = cell_run_module.CellTrainer.step

    def poisoned(self, inputs, batch):
        if self.cell_id == "sig-ms-cir" and (self.epoch, self.next_step) == (1, 2):
            with torch.no_grad():
                self.encoder.heads.image.fc.weight.fill_(float("nan"))
        real(self, inputs, batch)

    monkeypatch.setattr(cell_run_module.CellTrainer, "step", poisoned)
    unit = unit_of("sig-ms/cir", "con/con")
    folders = folders_of(unit, tmp_path / "mixed")
    outcomes = {outcome.key: outcome for outcome in train_unit(unit, folders)}
    failed = outcomes["sig-ms-cir"]
    assert isinstance(failed, TrainingFailed)
    assert failed.kind == "diverged"
    assert "NaN" in failed.reason
    assert isinstance(outcomes["con-con"], TrainingDone)
    assert folders["con-con"].numbers() == reference["con-con"].numbers()
    assert not folders["sig-ms-cir"].path("result.json").exists()


def test_a_collapsed_cell_fails_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pinned(self, inputs, batch):
        with torch.no_grad():
            self.encoder.heads.image.fc.weight.zero_()
            self.encoder.heads.image.fc.bias.fill_(1.0)
            self.encoder.heads.text.rnn.weight_ih_l0.zero_()
            self.encoder.heads.text.embed.weight.fill_(0.1)
        real(self, inputs, batch)

    real = cell_run_module.CellTrainer.step
    monkeypatch.setattr(cell_run_module.CellTrainer, "step", pinned)
    unit = unit_of("con/con", stage=replace(FROZEN, warmup_epochs=0, collapse_patience=4))
    (outcome,) = train_unit(unit, folders_of(unit, tmp_path))
    assert isinstance(outcome, TrainingFailed)
    assert outcome.kind == "collapsed"
    assert "for 4 steps" in outcome.reason


def test_the_best_epoch_is_that_of_the_split_that_selects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rsums = {"val": [10.0, 30.0, 20.0], "test": [5.0, 6.0, 7.0]}
    calls = dict.fromkeys(rsums, 0)

    def recalls(encoder, split, name):
        found = rsums[name][min(calls[name], 2)]
        calls[name] += 1
        return {f"{name}/i2t_r1": found / 6, f"{name}/t2i_r1": found / 6, f"{name}/rsum": found}

    monkeypatch.setattr(unit_module, "recalls_of", recalls)
    for select_on, best in (("val", 2), ("test", 3)):
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
    monkeypatch.setattr(unit_module, "recalls_of", lambda encoder, split, name: dict.fromkeys(VAL_RECALLS, 0.0))
    unit = unit_of("con/con")
    (outcome,) = train_unit(unit, folders_of(unit, tmp_path))
    assert isinstance(outcome, TrainingFailed)
    assert outcome.kind == "collapsed"
    assert "no val query has its match among the first ten" in outcome.reason


def test_events_come_once_for_each_cell_and_epoch(tmp_path: Path) -> None:
    heard: list[TrainingEvent] = []

    class Hear(SilentListener):
        def events(self, events) -> None:
            heard.extend(events)

    unit = unit_of("con/con", "lin/nca")
    train_unit(unit, folders_of(unit, tmp_path), Hear())
    epochs = [(event.key, event.record["epoch"]) for event in heard if not isinstance(event, TrainingDone)]
    assert sorted(epochs) == [(cell, epoch) for cell in ("con-con", "lin-nca") for epoch in (1, 2, 3)]
    assert [event.key for event in heard if isinstance(event, TrainingDone)] == ["con-con", "lin-nca"]


def test_finetune_starts_from_the_best_frozen_weights_and_evaluate_repeats_the_result(tmp_path: Path) -> None:
    frozen = unit_of("con/con")
    folders = folders_of(frozen, tmp_path / "frozen")
    train_unit(frozen, folders)
    best = folders["con-con"].path("best.safetensors")
    tune = unit_of("con/con", stage=FINETUNE, init={"con-con": best})
    tuned = folders_of(tune, tmp_path / "finetune")
    train_unit(tune, tuned)
    scratch = folders_of(tune, tmp_path / "scratch")
    train_unit(unit_of("con/con", stage=FINETUNE), scratch)
    assert tuned["con-con"].numbers() != scratch["con-con"].numbers()
    for folder in (folders["con-con"], tuned["con-con"]):
        again = evaluate_checkpoint(folder.root)["metrics"]
        assert again == {key: value for key, value in folder.numbers()[-1].items() if key.startswith("test/")}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains(tmp_path: Path, precision: str) -> None:
    unit = unit_of("sig-ms/cir", precision=precision)
    (outcome,) = train_unit(unit, folders_of(unit, tmp_path))
    assert isinstance(outcome, TrainingDone), outcome


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    small = unit_of("con/con")
    folders = folders_of(small, tmp_path / "small")
    train_unit(small, folders)
    other = unit_of(
        "con/con", model=replace(MODEL, embed_dim=8), init={"con-con": folders["con-con"].path("best.safetensors")}
    )
    (outcome,) = train_unit(other, folders_of(other, tmp_path / "other"))
    assert isinstance(outcome, TrainingFailed)
    assert "does not fit the model" in outcome.reason


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "best.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(WeightsError, match="cannot read checkpoint"):
        evaluate_checkpoint(tmp_path)


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
