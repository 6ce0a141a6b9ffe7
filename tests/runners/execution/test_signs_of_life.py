"""What the driver says about a worker that gives no sign of life."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runners.execution import signs_of_life
from runners.execution.signs_of_life import START_S, SignsOfLife, sign_seconds
from runners.execution.unit_line import UnitJob
from runners.execution.unit_listener import UnitListener
from runners.store import AttemptFolder, TrainingFolder
from sweeps import pack
from tests.helpers.sweep_cases import opened_in
from tests.helpers.until import until

WATCHDOG = 20
HERE = " on n1 (pid 7)"


class Driver:
    """A driver's view of one unit, with a clock of its own."""

    def __init__(self, job: UnitJob) -> None:
        self.now, self.said = 0.0, list[str]()
        self.signs = SignsOfLife(self.said.append, clock=lambda: self.now)
        self.signs.begin(3, job)

    def waits(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.signs.check()


class Worker:
    """A worker's files: the record that it touches."""

    def __init__(self, folder: TrainingFolder) -> None:
        folder.claim("L")
        self._path, self._at = folder.attempts.path(1), 1000.0

    def touches(self) -> None:
        self._at += 1
        os.utime(self._path, (self._at, self._at))


@pytest.fixture
def driver(tmp_path: Path) -> tuple[Driver, Worker]:
    sweep = opened_in(tmp_path / "store", f"resources.watchdog={WATCHDOG}", "objectives={only: [con/con]}")
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    return Driver(sweep.job(unit, "L", {})), Worker(sweep.store.folder(unit.trainings[0]))


def test_a_worker_that_reports_is_not_looked_for_in_the_store(
    driver: tuple[Driver, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = driver
    monkeypatch.setattr(AttemptFolder, "newest", lambda self: pytest.fail("the store was read"))
    for _ in range(20):
        seen.waits(int(sign_seconds(WATCHDOG)))
        seen.signs.heard(3, HERE)
    assert seen.said == []


def test_a_worker_that_only_touches_its_record_lives(driver: tuple[Driver, Worker]) -> None:
    seen, worker = driver
    for _ in range(20):
        worker.touches()
        seen.waits(5)
    assert seen.said == []


def test_a_silent_worker_is_told_of_once_and_so_is_its_return(driver: tuple[Driver, Worker]) -> None:
    seen, worker = driver
    seen.signs.heard(3, HERE)
    seen.waits(WATCHDOG + 3)
    (line,) = seen.said
    assert f"no sign of life from its worker{HERE} for 2" in line
    seen.waits(500)
    assert len(seen.said) == 1
    worker.touches()
    seen.waits(3)
    assert seen.said[1:] == [f"{line.partition(':')[0]}: its worker{HERE} is back"]
    seen.waits(WATCHDOG + 3)
    assert len(seen.said) == 3
    seen.signs.heard(3, HERE)
    assert "is back" in seen.said[3]


def test_a_driver_that_was_suspended_itself_blames_nobody(driver: tuple[Driver, Worker]) -> None:
    seen, _ = driver
    seen.now += 10 * WATCHDOG
    seen.signs.check()
    seen.waits(WATCHDOG // 4)
    assert seen.said == []
    seen.waits(WATCHDOG)
    assert len(seen.said) == 1


def test_a_unit_that_has_ended_is_forgotten(driver: tuple[Driver, Worker]) -> None:
    seen, _ = driver
    seen.signs.end(3)
    seen.waits(10 * WATCHDOG)
    seen.signs.heard(3, HERE)  # the last report of one that was stopped
    assert seen.said == []


def test_a_look_at_many_silent_units_is_spread_over_several_checks(
    driver: tuple[Driver, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = driver
    job = seen.signs._units[3].job
    for unit in range(100, 400):
        seen.signs.begin(unit, job)
    looks: list[float] = []

    def touched(job: UnitJob) -> float:
        seen.now += 0.01  # a slow network folder
        looks.append(seen.now)
        return 0.0

    monkeypatch.setattr(signs_of_life, "_touched", touched)
    seen.now += WATCHDOG / 4
    seen.signs.check()
    seen.now += WATCHDOG / 4
    before = seen.now
    seen.signs.check()
    assert 0 < len(looks) < 301
    assert seen.now - before < 1.0
    for _ in range(10):
        seen.signs.check()
    assert len(looks) >= 301


def test_a_worker_may_take_longer_to_begin(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store", f"resources.watchdog={WATCHDOG}", "objectives={only: [con/con]}")
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    seen = Driver(sweep.job(unit, "L", {}))
    seen.waits(START_S - 1)
    assert seen.said == []
    seen.waits(5)
    assert "no sign of life from its worker for" in seen.said[0]


def test_a_store_that_refuses_is_no_error(driver: tuple[Driver, Worker]) -> None:
    seen, _ = driver
    for path in Path(seen.signs._units[3].job.store).rglob("attempts"):
        path.rename(path.with_name("gone"))
        path.write_text("not a folder")
    seen.waits(START_S - 1)
    assert seen.said == []


@pytest.mark.parametrize("watchdog", [0, 100])
def test_a_worker_touches_its_record_whatever_it_does_and_without_a_watchdog(tmp_path: Path, watchdog: int) -> None:
    sweep = opened_in(tmp_path / "store", "objectives={only: [con/con]}")
    folder = sweep.store.folder(sweep.by_stage[0][0])
    folder.claim("L")
    path = folder.attempts.path(1)
    os.utime(path, (1, 1))
    with UnitListener({"key": folder}, lambda events: None, watchdog):
        until(lambda: path.stat().st_mtime > 10, "touch")
