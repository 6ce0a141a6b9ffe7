"""What the driver says about a worker that gives no sign of life."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.unit_watch import START_S, UnitWatch
from goal_sweep.sweeps import pack
from tests.helpers.sweep_cases import opened_in

WATCHDOG = 20
HERE = " on n1 (pid 7)"


class Driver:
    """A driver's view of one unit, whose worker has begun, with a clock of its own."""

    def __init__(self, store: Path) -> None:
        sweep = opened_in(store, f"resources.watchdog={WATCHDOG}", "objectives={only: [con/con]}")
        (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
        self.now, self.said = 0.0, list[str]()
        observer: Any = Mock(note=self.said.append)
        need = Resources(cpus=1, gpus=0)
        self.watch = UnitWatch([sweep.job(unit, "L", {})], observer, need, clock=lambda: self.now)
        self.watch.take(most=1)
        self.watch.started(0)

    def hears(self) -> None:
        self.watch.reported(0, {"where": HERE})

    def begins(self) -> None:
        for _ in range(2):
            self.hears()

    def waits(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.watch.step()


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "store")


def test_a_worker_that_reports_lives(driver: Driver) -> None:
    driver.begins()
    for _ in range(20):
        driver.waits(WATCHDOG // 4)
        driver.hears()
    assert driver.said == []


def test_a_silent_worker_is_told_of_once_and_so_is_its_return(driver: Driver) -> None:
    driver.begins()
    driver.waits(WATCHDOG - 1)
    assert driver.said == []
    driver.waits(500)
    (line,) = driver.said
    assert f"no sign of life from its worker{HERE} for 20 s" in line
    driver.hears()
    assert driver.said[1:] == [f"{line.partition(':')[0]}: its worker{HERE} is back"]
    driver.waits(WATCHDOG)
    assert len(driver.said) == 3


def test_a_driver_that_was_suspended_itself_blames_nobody(driver: Driver) -> None:
    driver.begins()
    driver.now += 10 * WATCHDOG
    driver.watch.step()
    driver.waits(WATCHDOG // 4)
    assert driver.said == []
    driver.waits(WATCHDOG)
    assert len(driver.said) == 1


def test_a_unit_that_has_ended_is_forgotten(driver: Driver) -> None:
    driver.watch.completed(0)
    driver.waits(10 * WATCHDOG)
    assert driver.said == []


def test_a_worker_may_take_longer_to_begin(driver: Driver) -> None:
    driver.hears()
    driver.waits(START_S - 1)
    assert driver.said == []
    driver.waits(1)
    assert f"no sign of life from its worker{HERE} for" in driver.said[0]
