"""Real launches whose processes are killed, die, hang or are suspended: only a cell at fault pays."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.launches import (
    WORKER,
    Launch,
    attempts,
    check_equal,
    failures,
    goal_sweep,
    results,
    run_by_every_process,
    sweep_in,
    tampered_trainer,
)
from tests.helpers.until import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
KILLS = 9
BUSY_S = 30
"""Seconds that a step may take on a machine that others use too."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("process", ["raylet/raylet", "gcs/gcs_server", "-P -m goal_sweep", WORKER])
def test_the_same_launch_goes_on_when_a_process_of_it_is_killed(unbroken: Path, tmp_path: Path, process: str) -> None:
    folder = sweep_in(tmp_path / "run")
    launch = Launch(folder)
    launch.saves()
    launch.child(process).kill()
    launch.ends()
    assert ("it goes on" in launch.said) == (process != WORKER)
    check_equal(folder, unbroken)


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "time.sleep(600)"], ids=["dies", "hangs"])
def test_a_cell_that_takes_its_process_with_it_fails_alone(unbroken: Path, tmp_path: Path, end: str) -> None:
    folder = sweep_in(tmp_path / "run")
    environment = tampered_trainer(tmp_path / "site", f"if (objective, epoch) == ('con/con', 3): {end}")
    words = ("launch", "tiny.yaml", "--set", "resources.watchdog=10")
    launched = goal_sweep(folder, *words, environment=environment, status=1)
    reason = "hung: no step for" if end.startswith("time") else "its worker process died"
    assert [failure.startswith(reason) for failure in failures(folder)] == [True] * 3
    assert launched.stdout.count(reason) >= 3
    assert results(folder).items() <= results(unbroken).items()
    assert len(results(folder)) == 2
    # The same code without the fault continues where the cell was.
    goal_sweep(folder, "launch", "tiny.yaml", "--retry-failed", status=0)
    assert results(folder) == results(unbroken)


@pytest.mark.exhaustive
def test_a_worker_that_is_killed_again_and_again_after_progress_costs_nothing(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    slow = tampered_trainer(tmp_path / "site", "time.sleep(0.3)")
    launch = Launch(folder, "--set", "resources.max_attempts=1", environment=slow)
    launch.saves()
    for number in range(1, KILLS + 1):
        before = {each: len(list(each.glob("*.json"))) for each in folder.glob("goal-sweep-store/cells/*/frozen-*/*")}
        assert all(count == number for path, count in before.items() if path.name == "attempts")
        launch.child(WORKER).kill()
        until(lambda: all(len(each) > number for each in attempts(folder).values()), "attempt", 300)  # noqa: B023
        launch.saves()
    launch.ends()
    assert {len(records) for records in attempts(folder).values()} == {KILLS + 1}
    check_equal(folder, unbroken)


DIES_BEFORE_IT_BEGINS = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "goal_sweep.runners.execution.worker" and "default_worker.py" in " ".join(sys.orig_argv):
            os._exit(3)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.exhaustive
def test_workers_that_die_before_they_begin_are_given_up_and_nothing_counts(tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    environment = run_by_every_process(tmp_path / "site", DIES_BEFORE_IT_BEGINS)
    launched = goal_sweep(folder, "launch", "tiny.yaml", environment=environment, status=75)
    assert "its workers died 8 times in a row" in launched.stdout
    assert attempts(folder) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("which", [WORKER, "-P -m goal_sweep"], ids=["worker", "launch"])
def test_a_suspended_process_goes_on_when_it_wakes_and_costs_nothing(unbroken: Path, tmp_path: Path, which: str):
    folder = sweep_in(tmp_path / "run")
    launch = Launch(folder, "--set", f"resources.watchdog={BUSY_S}")
    launch.saves()
    process: psutil.Process = launch.child(which)
    process.suspend()
    time.sleep(1.5 * BUSY_S)
    process.resume()
    launch.ends()
    assert {len(records) for records in attempts(folder).values()} == {1}
    check_equal(folder, unbroken)


@pytest.mark.exhaustive
def test_a_training_starts_when_the_one_before_it_is_done(unbroken: Path, tmp_path: Path) -> None:
    """A slow cell of the first stage holds back no other cell's second stage."""
    folder = sweep_in(tmp_path / "run")
    slow = "time.sleep(0.6 if objective == 'con/con' and cell.unit.stage.name == 'frozen' else 0)"
    environment = tampered_trainer(tmp_path / "site", slow)
    goal_sweep(folder, "launch", "tiny.yaml", "--set", "execution.cells_per_unit=1", environment=environment, status=0)
    ends = {cell: records[-1]["ended"] for cell, records in attempts(folder).items()}
    begins = {cell: records[0]["started"] for cell, records in attempts(folder, "finetune").items()}
    last, first = max(ends, key=ends.__getitem__), min(begins, key=begins.__getitem__)
    assert begins[first] < ends[last] - 10
    assert begins[last] > ends[last]
    check_equal(folder, unbroken)
