"""Several processes that train a unit together have the numbers of one, and end together."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from goal_sweep.goal_core.basics.errors import ConfigError, DeviceError
from goal_sweep.goal_core.checkpoints import read_checkpoint, write_checkpoint
from goal_sweep.goal_core.data.config import ImageConfig, KarpathyConfig
from goal_sweep.goal_core.training import Listener, StageConfig, UnitPlan, train_unit
from goal_sweep.goal_core.training.cells.state import check_splits
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.ranks import Ranks, RanksLostError, weight_sums
from tests.helpers.karpathy_fixture import tiny_annotations, write_dataset
from tests.helpers.training_cases import (
    DATA,
    FINETUNE,
    FROZEN,
    GRID,
    GRID_DATA,
    MODEL,
    TRAINED,
    XVLM,
    XVLM_DATA,
    XVLM_DROPS,
    StopAt,
    StoppedError,
    first_step,
    folders_of,
    same_weights,
    unit_of,
)

CASES = {
    "vsepp frozen": (MODEL, DATA, replace(FROZEN, warmup_epochs=0, batch_size=15), 2),
    "vsepp": (MODEL, DATA, replace(FINETUNE, batch_size=24), 3),
    "vsepp in chunks": (MODEL, DATA, replace(FINETUNE, micro_batch=5), 2),
    "vse_infty": (GRID, GRID_DATA, replace(TRAINED, batch_size=17), 2),
    "xvlm": (XVLM, XVLM_DATA, XVLM_DROPS, 3),
    "xvlm in chunks": (XVLM, XVLM_DATA, replace(XVLM_DROPS, micro_batch=3), 2),
}


QUICK = "xvlm in chunks"
CROPS = ImageConfig(size=32, resize=36, augment="crop_flip")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in CASES if one != QUICK)]
)
def test_several_processes_have_the_gradient_of_one(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, data, stage, processes = CASES[name]
    unit = unit_of("sig-ms/cir", stage=replace(stage, micro_batch=0), model=model, data=data)
    whole, state, logged = first_step(monkeypatch, tmp_path / "one", unit)
    unit = replace(unit, stage=stage, processes=processes)
    summed, same_state, same_logged = first_step(monkeypatch, tmp_path / "several", unit)
    scale = max(float(gradient.abs().max()) for gradient in whole)
    assert scale > 0
    for ours, theirs in zip(summed, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * scale)
    assert torch.equal(same_state, state)
    del (
        logged["grad_norm"],
        same_logged["grad_norm"],
    )  # rounding decides which of two equal images is the hardest
    assert same_logged == pytest.approx(logged, rel=1e-4)


def check_two_processes(unit: UnitPlan, root: Path, *, stop: int) -> None:
    """Train a unit in one process, in two, and in two that are stopped after some steps and resumed; compare."""
    one, two, killed = (folders_of(unit, root / name) for name in ("one", "two", "killed"))
    train_unit(unit, one)
    unit = replace(unit, processes=2)
    assert len(train_unit(unit, two)) == 2
    with pytest.raises(StoppedError):
        train_unit(unit, killed, StopAt(stop))
    train_unit(unit, killed)
    for key in one:
        ours, theirs = two[key].numbers(), one[key].numbers()
        assert len(ours) == len(theirs) == unit.stage.epochs + 1  # epochs, then the result
        for mine, yours in zip(ours[:-1], theirs[:-1], strict=True):
            assert mine["train/hinge"] == pytest.approx(yours["train/hinge"], rel=1e-3)
            assert mine["train/weight_grad_norm"] == pytest.approx(yours["train/weight_grad_norm"], rel=1e-2)
        assert killed[key].numbers() == ours
        assert same_weights(killed[key], two[key])
    assert not multiprocessing.active_children()


@pytest.mark.exhaustive
def test_two_processes_train_as_one_and_resume_as_unbroken(tmp_path: Path) -> None:
    """The last batch of an epoch is smaller, too."""
    stage = replace(FROZEN, batch_size=24, checkpoint_every=2)  # a warm-up epoch, and a learning rate that drops
    unit = unit_of("sig/nca", "con/con", stage=stage)
    check_two_processes(unit, tmp_path, stop=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stage", [pytest.param(FROZEN, id="frozen"), pytest.param(FINETUNE, id="finetune")])
def test_processes_with_image_workers_train_as_one_and_resume_as_unbroken(stage: StageConfig, tmp_path: Path) -> None:
    """Each process decodes its own rows of a batch in workers of its own."""
    content = tiny_annotations({"train": 6, "val": 3, "test": 3})
    for image in content["images"]:
        image["filename"] = f"{image['imgid']}.jpg"
    root = write_dataset(tmp_path / "data", content)
    data = KarpathyConfig(name="tiny", root=str(root), image=CROPS, min_word_count=1)
    stage = replace(stage, epochs=1, warmup_epochs=0, lr_drops=(), batch_size=10, checkpoint_every=1)
    unit = unit_of("sig/nca", "con/con", stage=stage, data=data, loader_workers=2)
    check_two_processes(unit, tmp_path, stop=2)


class Lost(Listener):
    """Kills the other process at a step, and notes what is said of it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == 3:
            (other,) = multiprocessing.active_children()
            os.kill(other.pid or 0, signal.SIGKILL)

    def lost(self, reason: str, kind: str) -> None:
        self.said.append((reason, kind))


@pytest.mark.exhaustive
def test_a_dead_process_ends_the_unit_which_continues_from_what_is_saved(tmp_path: Path) -> None:
    stage = replace(FROZEN, warmup_epochs=0, lr_drops=(), epochs=2, checkpoint_every=2)
    unit = replace(unit_of("sig/nca", stage=stage), processes=2)
    unbroken, broken = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "broken")
    train_unit(unit, unbroken)
    listener = Lost()
    with pytest.raises(RanksLostError, match="rank 1 of 2 ended with exit status -9") as lost:
        train_unit(unit, broken, listener)
    assert lost.value.kind == "died"
    assert [kind for _, kind in listener.said] == ["died"]
    assert not multiprocessing.active_children()
    train_unit(unit, broken)
    assert broken["sig-nca"].numbers() == unbroken["sig-nca"].numbers()


@pytest.mark.exhaustive
def test_an_error_of_one_process_alone_ends_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(self: CellTrainer, *arguments: object, **named: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CellTrainer, "step", short)  # only in this process, the first
    unit = replace(unit_of("sig/nca"), processes=2)
    with pytest.raises(RanksLostError, match="the first of 2 processes failed: OutOfMemoryError: CUDA out") as lost:
        train_unit(unit, folders_of(unit, tmp_path), listener := Lost())
    assert lost.value.kind == "memory"
    assert [kind for _, kind in listener.said] == ["memory"]
    assert not multiprocessing.active_children()


@pytest.mark.exhaustive
def test_an_error_that_all_meet_fails_one_cell_and_the_others_go_on(tmp_path: Path) -> None:
    stage = replace(FROZEN, lr_drops=(), warmup_epochs=0, collapse_patience=0, lr=1e-3, epochs=1)
    unit = replace(unit_of("con/con", "sig/nca", stage=stage), processes=2)
    folders = folders_of(unit, tmp_path)
    state = replace(unit, processes=1)
    with pytest.raises(StoppedError):
        train_unit(replace(state, stage=replace(stage, checkpoint_every=1)), folders, StopAt(1))
    last = folders["con-con"].path("last.safetensors")
    tensors, values = read_checkpoint(last)
    tensors["heads.text.embed.weight"][:] = torch.nan
    write_checkpoint(last, tensors, values)
    failed, done = train_unit(unit, folders)
    assert (failed.key, failed.kind) == ("con-con", "diverged")  # type: ignore[union-attr]
    assert done.key == "sig-nca"


def test_processes_with_other_weights_are_noticed() -> None:
    weights = [torch.nn.Parameter(torch.full((3, 2), -2.0)), torch.nn.Parameter(torch.ones(4))]
    sums = weight_sums(weights)
    assert sums.tolist() == [12, 4]
    Ranks(1, 2).check_same(sums, sums * (1 + 1e-6))
    with pytest.raises(RanksLostError, match="process 1 has come to other weights"):
        Ranks(1, 2).check_same(sums, sums * torch.tensor([1.0, 1.01]))


def test_whole_batch_statistics_are_not_split_over_gpus(tmp_path: Path) -> None:
    unit = unit_of("con/con", stage=replace(FINETUNE, bn_mode="legacy_quirk"))
    with pytest.raises(ConfigError, match="2 GPUs: vsepp normalises here by the statistics of whole batches"):
        check_splits(replace(unit, processes=2))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_have_the_gradient_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = unit_of("sig-ms/cir", stage=replace(FINETUNE, batch_size=24), device="cuda")
    one, _, _ = first_step(monkeypatch, tmp_path / "one", unit)
    two, _, _ = first_step(monkeypatch, tmp_path / "two", replace(unit, processes=2))
    scale = max(float(gradient.abs().max()) for gradient in one)
    for ours, theirs in zip(two, one, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_missing_gpus_are_named(tmp_path: Path) -> None:
    unit = unit_of("con/con", device="cuda", processes=2)
    with pytest.raises(DeviceError, match="no CUDA device"):
        train_unit(unit, folders_of(unit, tmp_path))
