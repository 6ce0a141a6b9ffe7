"""A batch that does not fit into memory: its training goes on with smaller chunks, says so, and nothing is counted."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.training.cells.stack import CellStack
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.config import SMALLEST_CHUNK
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.in_process import counted, launch, results, sweep_in

BATCH = ("stages.frozen.batch_size=16", "stages.finetune.batch_size=16")
FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_training_goes_on_in_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stage of one cell runs out of memory of the GPU, and with 8 pairs at a time out of the machine's."""
    step, kept = CellTrainer.step, set[tuple[str, str, int]]()

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        what = self.unit.stage.name, self.objective.name, self.unit.stage.micro_batch
        if what[:2] == ("finetune", "con/con") and what[2] != 4:
            raise MemoryError("bad alloc") if what[2] else FULL
        kept.add(what)
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path, *BATCH)
    assert launch(sweep, monkeypatch).status == 0
    assert len(results(sweep)) == 4
    assert kept == {
        ("frozen", "con/con", 0), ("frozen", "sig-ms/cir", 0), ("finetune", "sig-ms/cir", 0), ("finetune", "con/con", 4)
    }  # fmt: skip
    (training,) = [one for one in sweep.by_stage[1] if one.cell.objective.name == "con/con"]
    folder = sweep.store.folder(training)
    assert [one.outcome for one in folder.attempts.all()] == ["done"]
    log = folder.log_text()
    assert log.index("goes on with 8 pairs") < log.index("goes on with 4 pairs")


def test_the_cells_of_a_stack_go_on_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack does not fit, so its cells go on in chunks, which do not stack."""
    monkeypatch.setattr(CellStack, "step", Mock(side_effect=FULL))
    sweep = sweep_in(tmp_path, "execution.sharing=heads", *BATCH)
    assert launch(sweep, monkeypatch).status == 0
    assert counted(sweep) == []
    for training in sweep.by_stage[0]:
        folder = sweep.store.folder(training)
        log = folder.log_text()
        assert log.index("path heads: ") < log.index("goes on with 8 pairs") < log.index("path trunk: ")
        assert len(folder.attempts.numbers()) == 1


def test_what_does_not_fit_in_the_smallest_chunks_fails_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        sizes.append(self.unit.stage.micro_batch)
        raise MemoryError("bad alloc")

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}", *BATCH)
    assert launch(sweep, monkeypatch).status == 1
    assert sizes == [0, 8, SMALLEST_CHUNK] * 3
    assert len(counted(sweep)) == 3


def test_what_no_smaller_batch_would_change_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InitialModel, "heads", Mock(side_effect=FULL))
    monkeypatch.setattr(OpenedSweep, "check_trainable", lambda self: None)  # which builds the model, too
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}")
    assert launch(sweep, monkeypatch).status == 1
    reasons = counted(sweep)
    assert len(reasons) == 3
    assert "the model does not fit into memory" in reasons[0]
    assert "CUDA out of memory" in reasons[0]
