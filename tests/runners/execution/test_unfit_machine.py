"""A worker on a machine of a cluster that lacks something says what, by name and path, and claims nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.store.leases.heartbeat import DriverRecords

from goal_sweep.goal_core.basics.errors import MissingDataError
from goal_sweep.goal_core.training import TrainingFailed
from goal_sweep.runners.execution import inputs, worker
from goal_sweep.runners.execution.inputs import InputsDifferError, UnfitMachineError
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.sweeps import pack
from tests.helpers.sweep_cases import opened_in

HOST = socket.gethostname()


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    return opened_in(tmp_path / "store")


@pytest.fixture
def job(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnitJob]:
    monkeypatch.setattr(inputs, "_VISIBLE_S", 0.0)
    with sweep.store.heartbeat("s") as launch:
        launch.start()
        yield sweep.job(pack(sweep.by_stage[0], sweep.config.execution)[0], launch.id, {})


def refused(job: UnitJob, sweep: OpenedSweep) -> str:
    """Run a unit that another machine might train as well; what is said against this one."""
    with pytest.raises(UnfitMachineError) as raised:
        run_unit(job, lambda events: None, elsewhere=True)
    assert [sweep.store.folder(training).attempts.all() for training in sweep.by_stage[0]] == [[], []]
    return str(raised.value)


def test_data_that_are_missing_here_are_named_with_machine_and_path(
    job: UnitJob, sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*given: object) -> None:
        raise MissingDataError("no such folder: /data/coco")

    monkeypatch.setattr(worker, "open_inputs", missing)
    assert refused(job, sweep) == f"{HOST}: no such folder: /data/coco"


def test_a_store_that_is_not_the_drivers_is_not_written(job: UnitJob, sweep: OpenedSweep, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    said = refused(replace(job, store=str(elsewhere)), sweep)
    assert said.startswith(f"{HOST} does not see the store of the launch at {elsewhere}")
    assert not elsewhere.exists()


def test_a_store_that_cannot_be_written_here_is_named(
    job: UnitJob, sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(drivers: DriverRecords) -> float:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(DriverRecords, "file_time", read_only)
    assert f"{HOST} cannot write the store {sweep.store.root}: " in refused(job, sweep)


def test_other_versions_are_named(job: UnitJob, sweep: OpenedSweep) -> None:
    other = replace(job, software={**job.software, "torch": "1.0", "python": "2.7"})
    said = refused(other, sweep)
    assert f"torch {job.software['torch']}, not 1.0" in said
    assert f"python {job.software['python']}, not 2.7" in said
    assert "+" not in job.software["torch"]


def test_a_machine_without_a_gpu_says_so(job: UnitJob, sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = refused(replace(job, plan=replace(job.plan, device="cuda")), sweep)
    assert said.startswith(f"{HOST} has no GPU that torch ")


def test_where_no_other_machine_can_train_the_unit_its_trainings_fail_uncharged(
    job: UnitJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(*given: object) -> None:
        raise InputsDifferError("the data differ")

    monkeypatch.setattr(worker, "open_inputs", differ)
    sent: list[TrainingFailed] = []
    run_unit(job, sent.extend)  # type: ignore[arg-type]
    assert [(event.kind, event.reason) for event in sent] == [("inputs", "the data differ")] * 2
