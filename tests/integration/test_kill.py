"""A real launch whose driver, worker or Ray is killed in the middle, and one whose cell has diverged."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from goal_sweep.runners.launch import launcher
from tests.helpers.in_process import InProcess
from tests.helpers.launches import (
    check_mlflow,
    child_of,
    driver_after_an_epoch,
    goal_sweep_here,
    poison,
    results,
    saved_state,
    stop,
    sweep_in,
    wait_for_an_epoch,
    worker_of,
)

NOT_FINITE = "NaN or infinity|(is|are) not finite"
"""The reason of a diverged cell: in a step, or where it had none left, in its evaluation."""

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_after_kills_an_interrupt_and_a_cell_that_fails_alone_the_numbers_are_the_same(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweep_in(tmp_path / "run")
    stop(driver_after_an_epoch(folder))
    assert len(results(folder)) < 4
    driver = driver_after_an_epoch(folder)
    worker_of(driver).kill()
    wait_for_an_epoch(driver, folder)
    assert stop(driver, signal.SIGINT) == 130
    healthy = saved_state(folder, "*").read_bytes()
    poisoned = poison(folder)
    monkeypatch.setattr(launcher, "RayUnits", InProcess)
    launched = goal_sweep_here(folder, "launch", "tiny.yaml")
    assert launched.returncode == 1, launched.stdout + launched.stderr
    assert re.search(NOT_FINITE, launched.stdout), launched.stdout
    ours, theirs = results(folder), results(unbroken)
    assert ours == {key: value for key, value in theirs.items() if not key.startswith(poisoned)}
    assert len(ours) == 2
    assert re.search(NOT_FINITE, goal_sweep_here(folder, "logs", "tiny.yaml", "--failed").stdout)
    report = (folder / "goal-sweep-store" / "reports" / "tiny" / "report.md").read_text()
    assert "--" in report
    assert "failed" in report
    # A plain launch does not retry it. With --retry-failed it continues from its last state and fails the same way.
    assert "cells to train" not in goal_sweep_here(folder, "launch", "tiny.yaml").stdout
    asked = goal_sweep_here(folder, "launch", "tiny.yaml", "--retry-failed")
    assert asked.returncode == 1
    assert "1 of 2 cells to train" in asked.stdout
    assert results(folder) == ours
    # From the state that it had saved it ends as if nothing had happened.
    saved_state(folder, poisoned).write_bytes(healthy)
    mended = goal_sweep_here(folder, "launch", "tiny.yaml", "--retry-failed")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert results(folder) == theirs
    check_mlflow(folder)


@pytest.mark.exhaustive
def test_a_killed_worker_is_replaced_and_ends_with_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    driver = driver_after_an_epoch(folder)
    worker_of(driver).kill()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize("process", ["raylet/raylet", "gcs/gcs_server", "ray::DashboardAgent", "ray::RuntimeEnvAgent"])
def test_a_killed_ray_is_started_again_and_ends_with_the_same_numbers(
    unbroken: Path, tmp_path: Path, process: str
) -> None:
    folder = sweep_in(tmp_path / "run")
    driver = driver_after_an_epoch(folder)
    child_of(driver, process).kill()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert "starting again" in (folder / "driver.log").read_text()
    assert results(folder) == results(unbroken)
    check_mlflow(folder)
