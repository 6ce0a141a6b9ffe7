"""A real launch, with Ray, MLflow and the store."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.helpers.launches import driver_after_an_epoch, goal_sweep, poison, results, stop, sweep_in

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_launch_trains_everything_and_reports(unbroken: Path) -> None:
    assert len(results(unbroken)) == 4
    report = unbroken / "goal-sweep-store" / "reports" / "tiny"
    assert "R@1" in (report / "report.md").read_text()
    assert list(report.glob("heatmaps/*.png"))


def test_a_second_launch_trains_nothing(unbroken: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    again = goal_sweep(unbroken, "launch", "tiny.yaml")
    assert again.returncode == 0
    assert "nothing to train; report: " in again.stdout
    assert "cells to train" not in again.stdout
    after = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    assert after == before


def test_an_interrupt_ends_with_its_own_status_and_a_poisoned_cell_fails_alone(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    assert stop(driver_after_an_epoch(folder), signal.SIGINT) == 130
    poisoned = poison(folder)
    launched = goal_sweep(folder, "launch", "tiny.yaml")
    assert launched.returncode == 1, launched.stdout + launched.stderr
    assert "NaN or infinity" in launched.stdout
    ours, theirs = results(folder), results(unbroken)
    assert ours == {key: value for key, value in theirs.items() if not key.startswith(poisoned)}
    assert len(ours) == 2
    assert "NaN or infinity" in goal_sweep(folder, "logs", "tiny.yaml", "--failed").stdout
    report = (folder / "goal-sweep-store" / "reports" / "tiny" / "report.md").read_text()
    assert "--" in report
    assert "failed" in report
    # A plain launch does not retry it. With --retry-failed it continues from its last state and fails the same way.
    assert "cells to train" not in goal_sweep(folder, "launch", "tiny.yaml").stdout
    asked = goal_sweep(folder, "launch", "tiny.yaml", "--retry-failed")
    assert asked.returncode == 1
    assert "1 of 2 cells to train" in asked.stdout


def test_only_what_is_new_is_trained(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    before = results(folder)
    faster = goal_sweep(folder, "launch", "tiny.yaml", "--set", "stages.finetune.lr=1e-3")
    assert "cells to train" in faster.stdout
    assert not any(line.startswith("frozen: ") for line in faster.stdout.splitlines())
    assert "finetune: 2 of 2 cells to train" in faster.stdout
    seeds = goal_sweep(folder, "launch", "tiny.yaml", "--set", "seeds=[1,2]")
    assert "frozen: 2 of 4 cells to train" in seeds.stdout
    assert "finetune: 2 of 4 cells to train" in seeds.stdout
    after = results(folder)
    assert len(after) == 4 + 2 + 4
    assert before.items() <= after.items()
    # The report in the store now covers two seeds, so a launch with one seed writes it again.
    one = goal_sweep(folder, "launch", "tiny.yaml")
    assert "cells to train" not in one.stdout
    assert "report: 4 of 4 results" in one.stdout


def test_the_status_of_a_finished_sweep(unbroken: Path) -> None:
    rows = json.loads(goal_sweep(unbroken, "status", "tiny.yaml", "--json").stdout)
    assert [row["state"] for row in rows] == ["done"] * 4


def test_a_gpu_that_no_machine_has_is_one_clear_line(unbroken: Path) -> None:
    answer = goal_sweep(unbroken, "launch", "tiny.yaml", "--set", "resources.gpus=1", "--store", "other")
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "no machine has both" in answer.stderr
    assert "Traceback" not in answer.stderr
