"""Units that share a GPU and fill its memory: they go on with smaller chunks, or are tried again with fewer by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.runners.execution import memory
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.store import charged_failures
from tests.helpers import in_process
from tests.helpers.in_process import results, sweep_in

FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four units share a GPU, for which the CPU stands."""

    def run_shared(job: UnitJob, send: Any) -> None:
        run_unit(replace(job, plan=replace(job.plan, units_per_gpu=4)), send)

    monkeypatch.setattr(in_process, "run_unit", run_shared)


def test_parts_of_a_gpu_add_up_to_no_more_than_one_as_ray_counts() -> None:
    whole = Resources(cpus=2, gpus=1)
    assert whole.shared_by(1) == whole
    assert [whole.shared_by(units).gpus for units in (2, 3, 6, 7)] == [0.5, 0.3333, 0.1666, 0.1428]
    for units in range(1, 17):  # Ray rounds to 0.0001
        assert units * round(whole.shared_by(units).gpus, 4) <= 1
        assert int(1 / whole.shared_by(units).gpus) == units


@pytest.mark.usefixtures("shared")
def test_a_unit_that_does_not_fit_beside_others_goes_on_with_smaller_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = CellTrainer.step

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        if self.unit.stage.name == "frozen" and self.share.chunk != 8:
            raise FULL
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}")
    assert in_process.launch(sweep, monkeypatch).status == 0
    attempts = sweep.store.folder(sweep.by_stage[0][0]).attempts.all()
    assert [(one.units_per_gpu, one.micro_batch, one.charged) for one in attempts] == [(4, 0, False), (4, 8, False)]


@pytest.mark.usefixtures("shared")
def test_where_chunks_cannot_be_smaller_the_neighbours_are_named_and_nobody_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        raise FULL

    monkeypatch.setattr(CellTrainer, "step", full)
    monkeypatch.setattr(memory, "SMALLEST", 16)
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}")
    assert in_process.launch(sweep, monkeypatch).status == 1
    (attempt,) = sweep.store.folder(sweep.by_stage[0][0]).attempts.all()
    assert "out of memory as one of 4 units on a GPU; a lower execution.units_per_gpu" in attempt.reason
    assert charged_failures([attempt]) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_attempts_record_the_memory_that_they_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for units in (1, 2):
        sweep = sweep_in(tmp_path / str(units), f"resources.gpus={1 / units}")
        assert in_process.launch(sweep, monkeypatch).status == 0
        attempts = [one for training in sweep.trainings for one in sweep.store.folder(training).attempts.all()]
        assert all(0 < one.memory_mb < 4000 for one in attempts)
        found[units] = results(sweep)
    assert found[1] == found[2]
