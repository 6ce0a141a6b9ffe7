"""A batch that does not fit into memory: its training goes on with smaller chunks, says so, and is not charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from goal_sweep.runners.execution.memory import SMALLEST, Chunks

from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data.config import RegionsConfig
from goal_sweep.goal_core.training import UnitPlan
from goal_sweep.goal_core.training.cells import validation
from goal_sweep.goal_core.training.cells.stack import CellStack
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.shared_backbone import SharedBackbone
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import Attempt, charged_failures
from tests.helpers.in_process import launch, results, sweep_in
from tests.helpers.training_cases import FROZEN, unit_of

UNIT = unit_of("con/con", stage=replace(FROZEN, batch_size=100))


def chunks_of(plan: UnitPlan) -> Chunks:
    return Chunks.of(plan.stage, plan.data.format)


def attempt(n: int, micro_batch: int, launch_id: str = "L", *, out_of_memory: bool = True) -> Attempt:
    how: dict[str, Any] = {"outcome": "failed", "micro_batch": micro_batch, "out_of_memory": out_of_memory}
    return Attempt(n=n, launch_id=launch_id, host="h", pid=1, started=0.0, **how)


def test_chunks_are_halved_down_to_the_smallest() -> None:
    chunks, sizes = chunks_of(UNIT), []
    while smaller := chunks.smaller:
        chunks = smaller
        sizes.append(chunks.size)
    assert sizes == [50, 25, 13, 7, SMALLEST]
    assert str(chunks_of(UNIT)) == "batches of 100 pairs at once"
    assert chunks_of(UNIT).of_plan(UNIT) == UNIT
    assert chunks.of_plan(UNIT).stage.micro_batch == SMALLEST


def test_batches_that_must_be_whole_are_not_split() -> None:
    legacy = replace(UNIT, stage=replace(UNIT.stage, bn_mode="legacy_quirk"))
    regions = replace(UNIT, data=RegionsConfig(name="tiny", root="nowhere"))
    assert [chunks_of(unit).smaller for unit in (legacy, regions)] == [None, None]


def test_the_attempts_of_this_launch_decide() -> None:
    asked = chunks_of(replace(UNIT, stage=replace(UNIT.stage, micro_batch=60)))
    assert asked.after([], "L") == asked
    assert asked.after([attempt(1, 60, "before"), attempt(2, 60, out_of_memory=False)], "L") == asked
    assert asked.after([attempt(1, 60), attempt(2, 30)], "L").size == 15
    assert asked.after([attempt(1, 0)], "L").size == 50
    assert chunks_of(replace(UNIT, stage=replace(UNIT.stage, micro_batch=100))).size == 0


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), None])
def test_a_launch_goes_on_in_smaller_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """The finetune stage of one cell runs out of memory with more than 4 pairs at a time."""
    step, kept = CellTrainer.step, []

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        if self.unit.stage.name == "finetune" and self.objective.name == "con/con" and self.stage.micro_batch != 4:
            raise error or MemoryError("bad alloc")
        kept.append((self.unit.stage.name, self.objective.name, self.stage.micro_batch))
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path)
    outcome = launch(sweep, monkeypatch)
    assert outcome.status == 0
    assert len(results(sweep)) == 4
    assert set(kept) == {
        ("frozen", "con/con", 0), ("frozen", "sig-ms/cir", 0), ("finetune", "sig-ms/cir", 0), ("finetune", "con/con", 4)
    }  # fmt: skip
    (cell,) = [one for one in sweep.by_stage[1] if one.cell.objective.name == "con/con"]
    attempts = sweep.store.folder(cell).attempts.all()
    assert [(one.outcome, one.micro_batch, one.out_of_memory) for one in attempts] == [
        ("failed", 0, True), ("failed", 8, True), ("done", 4, False)
    ]  # fmt: skip
    assert charged_failures(attempts) == 0
    assert "out of memory with batches of 16 pairs at once; goes on with micro_batch 8" in attempts[0].reason
    log = sweep.store.folder(cell).log_text()
    assert "out of memory with micro_batch 8 (batches of 16 in 2 chunks, same gradient)" in log
    assert "goes on with micro_batch 4 (batches of 16 in 4 chunks, same gradient)" in log


def test_the_cells_of_a_stack_go_on_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack does not fit, so its cells are tried again in chunks, which do not stack; at no charge."""

    def no_stack(self: CellStack, *arguments: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(CellStack, "step", no_stack)
    sweep = sweep_in(tmp_path, "execution.sharing=heads")
    assert launch(sweep, monkeypatch).status == 0
    for training in sweep.by_stage[0]:
        folder = sweep.store.folder(training)
        log = folder.log_text()
        assert "path heads: sharing heads is set" in log
        assert "path trunk: sharing heads, but micro_batch 8" in log
        assert [one.micro_batch for one in folder.attempts.all()] == [0, 8]
        assert charged_failures(folder.attempts.all()) == 0


def test_what_does_not_fit_in_the_smallest_chunks_fails_and_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        raise MemoryError("bad alloc")

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path)
    assert launch(sweep, monkeypatch).status == 1
    folder = sweep.store.folder(sweep.by_stage[0][0])
    attempts = folder.attempts.all()
    assert [one.micro_batch for one in attempts] == [0, 8, 4, 4, 4]
    assert [one.charged for one in attempts] == [False, False, True, True, True]


FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ((InitialModel, "heads"), "the model does not fit into memory, which no smaller batch would change"),
        ((validation, "recalls_of"), "the evaluation on val does not fit into memory"),
        ((SharedBackbone, "prepare"), "the features of all training images does not fit into memory"),
    ],
)
def test_what_no_smaller_batch_would_change_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], reason: str
) -> None:
    def full(*arguments: Any, **named: Any) -> None:
        raise FULL

    monkeypatch.setattr(*place, full)
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}")
    monkeypatch.setattr(OpenedSweep, "check_trainable", lambda self: None)  # which builds the model, too
    assert launch(sweep, monkeypatch).status == 1
    attempts = sweep.store.folder(sweep.by_stage[0][0]).attempts.all()
    assert len(attempts) == 3
    assert all(one.charged and not one.out_of_memory and one.micro_batch == 0 for one in attempts)
    assert reason in attempts[0].reason
    assert "CUDA out of memory" in attempts[0].reason
