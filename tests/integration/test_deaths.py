"""Real launches whose processes are killed, die, hang or are suspended: only a cell at fault pays."""

from __future__ import annotations

import re
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
    sweep_in,
    tampered_trainer,
)

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive, pytest.mark.timeout(900)]
BUSY_S = 30
"""Seconds that a step may take on a machine that others use too."""


def test_a_launch_goes_on_when_a_worker_is_killed(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    launch = Launch(folder)
    launch.saves()
    launch.child(WORKER).kill()
    launch.ends()
    check_equal(folder, unbroken)


@pytest.mark.parametrize("process", ["raylet/raylet", "gcs/gcs_server", "-P -m goal_sweep"])
def test_the_same_command_continues_when_ray_or_the_launch_is_killed(unbroken: Path, tmp_path: Path, process: str):
    folder = sweep_in(tmp_path / "run")
    launch = Launch(folder)
    launch.saves()
    launch.child(process).kill()
    launch.ends(75)
    assert launch.said.count("the same command continues") == 1
    (logs,) = re.findall("what Ray says of it, until the next launch, is in (.*)", launch.said)
    assert (Path(logs) / "raylet.out").is_file()
    goal_sweep(folder, "launch", "tiny.yaml", status=0)
    check_equal(folder, unbroken)


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
