"""A real launch whose driver, worker or Ray is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.launches import check_mlflow, child_of, driver_after_an_epoch, goal_sweep, results, stop, sweep_in

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_killed_driver_continues_to_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    stop(driver_after_an_epoch(folder))
    assert len(results(folder)) < 4
    finished = goal_sweep(folder, "launch", "tiny.yaml")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


@pytest.mark.exhaustive
def test_a_killed_worker_is_replaced_and_ends_with_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    driver = driver_after_an_epoch(folder)
    child_of(driver, "ray::Implicit").kill()
    assert driver.wait(timeout=300) == 0, (folder / "driver.log").read_text()
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


@pytest.mark.exhaustive
@pytest.mark.parametrize("process", ["raylet/raylet", "gcs/gcs_server"])
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
