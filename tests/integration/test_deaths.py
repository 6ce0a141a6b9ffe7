"""A real launch whose workers die, hang, are killed or are suspended: only the cell at fault pays."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.launches import (
    attempts,
    check_mlflow,
    driver_after_an_epoch,
    goal_sweep,
    results,
    run_by_every_process,
    sweep_in,
    tampered_trainer,
    worker_of,
)

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive, pytest.mark.timeout(900)]
KILLS = 9
BUSY_S = 30
"""Seconds that a step may take on a machine that others use too."""


def charged(folder: Path) -> dict[str, int]:
    return {cell: sum(record["charged"] for record in records) for cell, records in attempts(folder).items()}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os.kill(os.getpid(), 9)", id="dies"),
        pytest.param("time.sleep(600)", id="hangs"),
    ],
)
def test_a_cell_that_takes_its_process_with_it_fails_alone(unbroken: Path, tmp_path: Path, end: str) -> None:
    folder = sweep_in(tmp_path / "run")
    environment = tampered_trainer(tmp_path / "site", f"if (objective, epoch) == ('con/con', 3): {end}")
    launched = goal_sweep(folder, "launch", "tiny.yaml", "--set", "resources.watchdog=10", environment=environment)
    assert launched.returncode == 1, launched.stdout + launched.stderr
    counts = charged(folder)
    (poisoned,) = (cell for cell, count in counts.items() if count)
    assert counts[poisoned] == 3
    ours, theirs = results(folder), results(unbroken)
    assert ours == {key: value for key, value in theirs.items() if not key.startswith(poisoned)}
    assert len(ours) == 2
    assert ("hung: no step for" if end.startswith("time") else "its worker process died") in launched.stdout
    # The same code without the fault continues where the cell was.
    again = goal_sweep(folder, "launch", "tiny.yaml", "--retry-failed")
    assert again.returncode == 0, again.stdout + again.stderr
    assert results(folder) == theirs


def test_a_worker_that_is_killed_again_and_again_after_progress_costs_nothing(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    environment = tampered_trainer(tmp_path / "site", "time.sleep(0.3)")
    driver = driver_after_an_epoch(folder, "--set", "resources.max_attempts=1", environment=environment)
    for number in range(1, KILLS + 1):
        deadline = time.monotonic() + 120
        while not has_saved(folder, attempt=number):
            assert driver.poll() is None, (folder / "driver.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker_of(driver).kill()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert {len(records) for records in attempts(folder).values()} == {KILLS + 1}
    assert set(charged(folder).values()) == {0}
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


def has_saved(folder: Path, attempt: int) -> bool:
    """Whether an attempt has begun at each training, and has saved a state of one."""
    trainings = list(folder.glob("goal-sweep-store/cells/*/frozen-*"))
    has_begun = all((one / "attempts" / f"{attempt}.json").exists() for one in trainings)
    return has_begun and any((one / f"last.{attempt}.safetensors").exists() for one in trainings)


DIES_BEFORE_IT_BEGINS = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "goal_sweep.runners.execution.worker" and "default_worker.py" in " ".join(sys.orig_argv):
            os._exit(3)

sys.meta_path.insert(0, Finder())
"""


def test_workers_that_die_before_they_begin_are_given_up_and_nobody_is_charged(tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    environment = run_by_every_process(tmp_path / "site", DIES_BEFORE_IT_BEGINS)
    launched = goal_sweep(folder, "launch", "tiny.yaml", environment=environment)
    assert launched.returncode == 1, launched.stdout + launched.stderr
    assert launched.stdout.count("its worker died; restarting") == 7
    assert "given up for now: " in launched.stdout
    assert "its workers died: " in launched.stdout
    assert attempts(folder) == {}


def test_a_suspended_worker_goes_on_uncharged_when_it_wakes(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    driver = driver_after_an_epoch(folder, "--set", "resources.watchdog=20")
    worker = worker_of(driver)
    worker.suspend()
    time.sleep(25)
    worker.resume()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert set(charged(folder).values()) == {0}
    assert {len(records) for records in attempts(folder).values()} == {1}
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


def test_a_suspended_driver_costs_nothing(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    driver = driver_after_an_epoch(folder, "--set", f"resources.watchdog={BUSY_S}")
    process = psutil.Process(driver.pid)
    process.suspend()
    time.sleep(1.5 * BUSY_S)
    process.resume()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert set(charged(folder).values()) == {0}
    assert {len(records) for records in attempts(folder).values()} == {1}
    assert results(folder) == results(unbroken)
    check_mlflow(folder)
