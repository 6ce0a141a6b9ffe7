"""A finished launch, and what the next commands make of its store.

What is trained here is trained without Ray, by the same driver, worker, trainer, store and tracking.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from goal_sweep.runners.execution.session.session import RaySession

from goal_sweep.runners.launch import launcher
from tests.helpers.in_process import InProcess
from tests.helpers.launches import check_mlflow, goal_sweep_here, results

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_launch_trains_everything_and_reports_though_nobody_reads_its_output(unbroken: Path) -> None:
    assert len(results(unbroken)) == 4
    check_mlflow(unbroken)
    report = unbroken / "goal-sweep-store" / "reports" / "tiny"
    assert "R@1" in (report / "report.md").read_text()
    assert list(report.glob("heatmaps/*.png"))


def test_a_second_launch_trains_nothing(unbroken: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    again = goal_sweep_here(unbroken, "launch", "tiny.yaml")
    assert again.returncode == 0
    assert "nothing to train; report: " in again.stdout
    assert "cells to train" not in again.stdout
    after = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    assert after == before


def test_only_what_is_new_is_trained(unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "RayUnits", InProcess)
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    before = results(folder)
    faster = goal_sweep_here(folder, "launch", "tiny.yaml", "--set", "stages.finetune.lr=1e-3")
    assert "cells to train" in faster.stdout
    assert not any(line.startswith("frozen: ") for line in faster.stdout.splitlines())
    assert "finetune: 2 of 2 cells to train" in faster.stdout
    seeds = goal_sweep_here(folder, "launch", "tiny.yaml", "--set", "seeds=[1,2]")
    assert "frozen: 2 of 4 cells to train" in seeds.stdout
    assert "finetune: 2 of 4 cells to train" in seeds.stdout
    after = results(folder)
    assert len(after) == 4 + 2 + 4
    assert before.items() <= after.items()
    # The report in the store now covers two seeds, so a launch with one seed writes it again.
    one = goal_sweep_here(folder, "launch", "tiny.yaml")
    assert "cells to train" not in one.stdout
    assert "report: 4 of 4 results" in one.stdout


def test_the_status_of_a_finished_sweep(unbroken: Path) -> None:
    rows = json.loads(goal_sweep_here(unbroken, "status", "tiny.yaml", "--json").stdout)
    assert [row["state"] for row in rows] == ["done"] * 4


def test_a_gpu_that_this_machine_lacks_is_said_before_ray_starts(
    unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 0}')
    monkeypatch.setattr(RaySession, "_start", lambda self: pytest.fail("Ray was started"))
    answer = goal_sweep_here(unbroken, "launch", "tiny.yaml", "--set", "resources.gpus=1", "--store", "other")
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "--set resources.gpus=0" in answer.stderr
    assert "Traceback" not in answer.stderr
