"""The main job for real: Ray, MLflow and the store, with a driver killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

SWEEP = """
name: tiny
data: {format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: EPOCHS, lr: 1e-3, batch_size: 16, warmup_epochs: 1}
  - {name: finetune, epochs: 1, lr: 1e-4, batch_size: 16}
execution: {sharing: trunk}
"""
EPOCHS = 40


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from runners.cli import main; main()", *arguments]


def goal_sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=400, check=False)


def sweep_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SWEEP.replace("EPOCHS", str(EPOCHS)))
    return folder


def results(folder: Path) -> dict[str, dict]:
    """Final metrics by cell and stage, from the store."""
    found = {}
    for path in sorted((folder / "goal-sweep-store" / "cells").glob("*/*/result.json")):
        found[f"{path.parent.parent.name}/{path.parent.name}"] = json.loads(path.read_text())["metrics"]
    return found


def kill_after_an_epoch(folder: Path) -> None:
    """Start a launch and kill the driver once a cell has saved an epoch."""
    driver = subprocess.Popen(
        command("launch", "tiny.yaml"), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not list(folder.glob("goal-sweep-store/cells/*/frozen-*/metrics.jsonl")):
        assert driver.poll() is None, "the launch ended before it was killed"
        assert time.monotonic() < deadline, "no epoch within two minutes"
        time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = sweep_in(tmp_path_factory.mktemp("unbroken") / "run")
    done = goal_sweep(folder, "launch", "tiny.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_launch_trains_everything_and_reports(unbroken: Path) -> None:
    assert len(results(unbroken)) == 4
    report = unbroken / "goal-sweep-store" / "reports" / "tiny"
    assert "±" in (report / "report.md").read_text() or "n=1" in (report / "report.md").read_text()
    assert list(report.glob("heatmaps/*.png"))


def test_a_second_launch_trains_nothing(unbroken: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    again = goal_sweep(unbroken, "launch", "tiny.yaml")
    assert again.returncode == 0
    assert "cells to train" not in again.stdout
    after = {path: path.stat().st_mtime_ns for path in unbroken.glob("goal-sweep-store/cells/**/*") if path.is_file()}
    assert after == before


def test_a_killed_driver_continues_to_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    folder = sweep_in(tmp_path / "run")
    kill_after_an_epoch(folder)
    assert len(results(folder)) < 4
    finished = goal_sweep(folder, "launch", "tiny.yaml")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert results(folder) == results(unbroken)
    check_mlflow(folder)


def check_mlflow(folder: Path) -> None:
    """One parent, one run for each cell and stage, no (metric, step) twice."""
    client = MlflowClient(f"sqlite:///{folder / 'goal-sweep-store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    runs = client.search_runs([experiment.experiment_id])
    assert Counter(run.data.tags["goal.role"] for run in runs) == {"sweep": 1, "cell": 4}
    cells = [run for run in runs if run.data.tags["goal.role"] == "cell"]
    assert {run.data.tags["goal.status"] for run in cells} == {"done"}
    for run in cells:
        epochs = EPOCHS if run.data.tags["goal.stage"] == "frozen" else 1
        steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "val/rsum")]
        assert sorted(steps) == list(range(1, epochs + 1))


def test_status_and_errors_of_the_command_line(unbroken: Path) -> None:
    rows = json.loads(goal_sweep(unbroken, "status", "tiny.yaml", "--json").stdout)
    assert [row["state"] for row in rows] == ["done"] * 4
    for wrong, said in (
        (("launch", "nowhere.yaml"), "nowhere.yaml"),
        (("launch", "tiny.yaml", "--set", "stages.frozen.epoch=2"), "epoch"),
        (("launch", "tiny.yaml", "--set", "objectives.only=[con/cos]"), "con/cos"),
        (("launch", "tiny.yaml", "--set", "stages.frozen.batch_size=4000", "--store", "other"), "larger than the data"),
        (("launch", "tiny.yaml", "--set", "resources.gpus=1", "--store", "other"), "GPU"),
    ):
        answer = goal_sweep(unbroken, *wrong)
        assert answer.returncode == 2, (wrong, answer.stdout, answer.stderr)
        assert said in answer.stderr
        assert "Traceback" not in answer.stderr
