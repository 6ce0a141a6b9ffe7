"""A unit on several GPUs, here several processes of a CPU: a lost process ends it as a lost worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_listener import RANK_LOST, UnitListener

from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.store import charged_failures
from goal_sweep.sweeps import pack
from tests.helpers.in_process import results, sweep_in
from tests.helpers.paths import ROOT


def job_in(folder: Path, launch_id: str) -> UnitJob:
    """The first stage of the tiny sweep, to be trained by two processes."""
    sweep = sweep_in(folder)
    for cell in sweep.cells:
        sweep.store.write_cell(cell)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    job = sweep.job(unit, launch_id, {})
    assert job.plan.processes == 1
    return replace(job, plan=replace(job.plan, processes=2))


def lose_a_process(folder: str, launch_id: str, epoch: str) -> None:
    """In a process of its own: train until the other process is killed, after an epoch."""

    def kill(events: Any) -> None:
        if any(getattr(event, "record", {}).get("epoch") == int(epoch) for event in events):
            (other,) = multiprocessing.active_children()
            os.kill(other.pid or 0, signal.SIGKILL)

    run_unit(job_in(Path(folder), launch_id), kill)


@pytest.mark.exhaustive
def test_a_lost_process_ends_the_worker_and_the_next_one_continues(tmp_path: Path) -> None:
    sweep, whole = sweep_in(tmp_path / "broken"), sweep_in(tmp_path / "whole")
    with whole.store.heartbeat("s") as launch:
        run_unit(job_in(tmp_path / "whole", launch.id), lambda events: None)
    with sweep.store.heartbeat("s") as launch:
        program = tmp_path / "program.py"
        program.write_text(
            "import sys\nfrom tests.runners.execution.test_several_gpus import lose_a_process\n"
            "if __name__ == '__main__':\n    lose_a_process(*sys.argv[1:])\n"
        )
        done = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "broken"), launch.id, "1"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=200,
            check=False,
        )
        assert done.returncode == RANK_LOST
        folders = [sweep.store.folder(training) for training in sweep.by_stage[0]]
        for folder in folders:
            (attempt,) = folder.attempts.all()
            assert (attempt.outcome, attempt.died) == ("lost", True)
            assert attempt.reason == "rank 1 of 2 ended with exit status -9"
        run_unit(job_in(tmp_path / "broken", launch.id), lambda events: None)
        assert [charged_failures(folder.attempts.all()) for folder in folders] == [0, 0]  # they had saved an epoch
    assert results(sweep) == results(whole) != {}


def test_a_lost_process_that_was_out_of_memory_is_followed_by_smaller_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_in(tmp_path)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    tried: list[int] = []

    def breaks(plan: Any, folders: Any, listener: UnitListener, dataset: Any) -> None:
        tried.append(plan.stage.micro_batch)
        if len(tried) == 1:
            listener.lost("rank 1 of 2 failed: OutOfMemoryError: CUDA out of memory", "memory")
            listener.ended |= set(folders)  # the process would have ended here

    monkeypatch.setattr(worker, "train_unit", breaks)
    with sweep.store.heartbeat("s") as launch:
        for _ in range(2):
            run_unit(sweep.job(unit, launch.id, {}), lambda events: None)
    assert ended == [RANK_LOST]
    assert tried == [0, 8]
    first, second = sweep.store.folder(unit.trainings[0]).attempts.all()
    assert (first.outcome, first.died, first.out_of_memory, first.charged) == ("lost", False, True, False)
    assert "goes on with micro_batch 8" in first.reason
    assert second.micro_batch == 8
    assert "rank 1 of 2 failed" in sweep.store.folder(unit.trainings[0]).log_text()


def test_the_gpus_of_a_sweep_are_the_processes_of_its_units(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    for gpus, processes in ((0, 1), (0.25, 1), (1, 1), (4, 4)):
        config = replace(sweep.config, resources=replace(sweep.config.resources, gpus=gpus))
        assert replace(sweep, config=config).plan_unit(unit).processes == processes
