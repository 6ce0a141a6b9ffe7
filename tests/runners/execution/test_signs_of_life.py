"""What the driver says about a worker that gives no sign of life."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from runners.execution.signs_of_life import START_S, SignsOfLife
from runners.execution.unit_listener import UnitListener
from runners.execution.worker import UnitJob
from runners.store import TrainingFolder
from sweeps import pack
from tests.helpers.sweep_cases import opened_in

WATCHDOG = 20


class Driver:
    """A driver's view of one unit, with a clock of its own."""

    def __init__(self, job: UnitJob) -> None:
        self.now, self.said = 0.0, list[str]()
        self.signs = SignsOfLife(self.said.append, clock=lambda: self.now)
        self.signs.begin(job)

    def waits(self, seconds: float, folder: TrainingFolder | None = None) -> None:
        """Let time pass second by second; the worker of ``folder`` gives a sign of life every second."""
        for _ in range(round(seconds)):
            self.now += 1
            if folder is not None:
                os.utime(folder.attempts.path(folder.attempt), (self.now, self.now))
            self.signs.check()


@pytest.fixture
def job(tmp_path: Path) -> UnitJob:
    sweep = opened_in(tmp_path / "store", f"resources.watchdog={WATCHDOG}")
    return sweep.job(pack(sweep.by_stage[0], sweep.config.execution)[0], "L", {})


def claimed(job: UnitJob) -> TrainingFolder:
    folder = opened_in(Path(job.store)).store.folder(job.unit.trainings[1])
    folder.claim("L")
    return folder


def test_a_silent_worker_is_named_once_and_once_again_when_it_is_back(job: UnitJob) -> None:
    folder = claimed(job)
    driver = Driver(job)
    driver.waits(100, folder)
    assert driver.said == []
    driver.waits(5 * WATCHDOG)
    (said,) = driver.said
    assert f"no sign of life from its worker on {folder.attempts.newest().host} (pid {os.getpid()}) for 2" in said
    driver.waits(100, folder)
    assert len(driver.said) == 2
    assert driver.said[1].endswith(f"(pid {os.getpid()}) is back")


def test_a_worker_may_take_longer_to_begin(job: UnitJob) -> None:
    driver = Driver(job)
    driver.waits(START_S - 10)
    assert driver.said == []
    driver.waits(20)
    assert ["no sign of life from its worker for" in line for line in driver.said] == [True]


def test_a_driver_that_was_suspended_itself_accuses_nobody(job: UnitJob) -> None:
    claimed(job)
    driver = Driver(job)
    driver.waits(10)
    driver.now += 1000
    driver.waits(10)
    assert driver.said == []


def test_a_unit_that_has_ended_is_not_missed_and_a_store_that_refuses_is_no_error(job: UnitJob) -> None:
    driver = Driver(job)
    claimed(job)
    for path in Path(job.store).rglob("attempts"):
        path.rename(path.with_name("gone"))
        path.write_text("not a folder")
    driver.waits(10)
    driver.signs.end(job)
    driver.waits(10 * WATCHDOG)
    assert driver.said == []


@pytest.mark.parametrize("watchdog", [0, 100])
def test_a_worker_gives_signs_of_life_whatever_it_does_and_without_a_watchdog(job: UnitJob, watchdog: int) -> None:
    folder = claimed(job)
    path = folder.attempts.path(folder.attempt)
    os.utime(path, (1, 1))
    with UnitListener({folder.folder.name: folder}, lambda events: None, watchdog):
        deadline = time.monotonic() + 60
        while path.stat().st_mtime < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert path.stat().st_mtime > 10
