"""Launch a tiny sweep as a user does: in its own process, with Ray, MLflow and the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
from mlflow import MlflowClient

from goal_core.checkpoints.file import read_checkpoint, write_checkpoint

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
EPOCHS = 12


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from runners.cli.app import main; main()", *arguments]


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


def driver_after_an_epoch(folder: Path) -> subprocess.Popen[bytes]:
    """Start a launch and wait until every cell has saved an epoch."""
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command("launch", "tiny.yaml"), cwd=folder, stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("goal-sweep-store/cells/*/frozen-*/metrics.jsonl"))) < 2:
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, "no epoch within two minutes"
        time.sleep(0.05)
    return driver


def stop(driver: subprocess.Popen[bytes], with_signal: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to a launch and wait until it ends."""
    os.kill(driver.pid, with_signal)
    return driver.wait(timeout=120)


def child_of(driver: subprocess.Popen[bytes], command: str) -> psutil.Process:
    """The first child process of a launch whose command line contains a text."""
    children = psutil.Process(driver.pid).children(recursive=True)
    return next(child for child in children if command in " ".join(child.cmdline()))


def poison(folder: Path) -> str:
    """Put NaN into the saved state of one cell. Returns the cell's id."""
    path = sorted(folder.glob("goal-sweep-store/cells/*/frozen-*/last.safetensors"))[0]
    tensors, state = read_checkpoint(path)
    tensors["heads.image.fc.weight"].fill_(float("nan"))
    write_checkpoint(path, tensors, state)
    return path.parent.parent.name


def check_mlflow(folder: Path) -> None:
    """Check that there is one parent run, one run for each cell and stage, and no (metric, step) twice."""
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
