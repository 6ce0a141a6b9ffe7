"""Launch a tiny sweep as a user does: in its own process, with Ray, MLflow and the store.

A process of its own costs seconds of imports, and Ray many more. What needs neither runs the same command here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from mlflow import MlflowClient

from goal_sweep.goal_core.checkpoints.file import read_checkpoint, write_checkpoint
from goal_sweep.runners.cli import app
from tests.helpers.blank_figures import blank_figures
from tests.helpers.paths import ROOT

SWEEP = """
name: tiny
data: {format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: EPOCHS, lr: 1e-3, batch_size: 16, warmup_epochs: 1}
  - {name: finetune, epochs: 1, lr: 1e-4, batch_size: 16}
execution: {sharing: trunk, cells_per_unit: 0}
"""
EPOCHS = 30


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "goal_sweep.runners.cli", *arguments]


def goal_sweep(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )


def goal_sweep_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with blank figures. What trains needs a stand-in for Ray, as `InProcess`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), blank_figures():
        status = app.run(list(arguments))
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def sweep_in(folder: Path, epochs: int = EPOCHS) -> Path:
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SWEEP.replace("EPOCHS", str(epochs)))
    return folder


def results(folder: Path) -> dict[str, dict[str, float]]:
    """Final metrics by cell and stage, from the store."""
    found = {}
    for path in _result_files(folder):
        found[f"{path.parent.parent.name}/{path.parent.name}"] = json.loads(path.read_text())["metrics"]
    return found


def _result_files(folder: Path) -> list[Path]:
    """The results in the store, without those that were set aside."""
    found = (folder / "goal-sweep-store" / "cells").glob("*/*/result.json")
    return sorted(path for path in found if "." not in path.parent.name)


def driver_after_an_epoch(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a launch, or continue one, and wait until every cell has saved an epoch in it."""
    launch = command("launch", "tiny.yaml", *arguments)
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(launch, cwd=folder, env=environment, stdout=log, stderr=log)
    wait_for_an_epoch(driver, folder)
    return driver


class Launch:
    """A launch in a process of its own, and what it has said."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = folder / f"launch-{time.monotonic_ns()}.log"
        own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command("launch", "tiny.yaml", *arguments), cwd=folder, env={**own, **(environment or {})},
                stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, text: str, within: float = 180, times: int = 1) -> None:
        """Wait until it has said something so many times."""
        deadline = time.monotonic() + within
        while self.said.count(text) < times:
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode} without {text!r}:\n{self.said}"
            )
            assert time.monotonic() < deadline, f"no {text!r} within {within} s:\n{self.said}"
            time.sleep(0.1)

    def ends(self, status: int = 0, within: float = 600) -> None:
        """Wait for its end."""
        assert self.process.wait(timeout=within) == status, self.said


def wait_for_an_epoch(driver: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a launch has saved another epoch of every cell."""
    before, deadline = _histories(folder), time.monotonic() + 300
    while len({path.parent for path, _ in _histories(folder) - before}) < 2:
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, "no epoch within five minutes"
        time.sleep(0.05)


def _histories(folder: Path) -> set[tuple[Path, int]]:
    """The files with the epochs of the trainings, each with the time of its last change."""
    found = set()
    for path in folder.glob("goal-sweep-store/cells/*/*-*/metrics.*jsonl"):
        with contextlib.suppress(FileNotFoundError):  # a newer one has replaced it
            found.add((path, path.stat().st_mtime_ns))
    return found


def stop(driver: subprocess.Popen[bytes], with_signal: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to a launch and wait until it ends."""
    os.kill(driver.pid, with_signal)
    return driver.wait(timeout=120)


def child_of(driver: subprocess.Popen[bytes], command: str) -> psutil.Process:
    """The first child process of a launch whose command line contains a text. It may begin in a moment."""
    deadline = time.monotonic() + 60
    while True:
        for child in psutil.Process(driver.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if command in " ".join(child.cmdline()):
                    return child
        assert time.monotonic() < deadline, f"no process of {command}"
        time.sleep(0.05)


def worker_of(driver: subprocess.Popen[bytes]) -> psutil.Process:
    """The process that trains for a launch with one unit."""
    return child_of(driver, "ray::Implicit")


TAMPERED = """
import importlib.util, os, sys, time

def tamper(trainer):
    step = trainer.step
    def tampered(cell, *arguments, **named):
        objective, epoch = cell.objective.name, cell.epoch
        STATEMENT
        step(cell, *arguments, **named)
    trainer.step = tampered

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "goal_sweep.goal_core.training.cells.trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), tamper(module.CellTrainer))
        return spec

sys.meta_path.insert(0, Finder())
"""


def tampered_trainer(folder: Path, statement: str) -> dict[str, str]:
    """An environment in which every cell executes a statement before each step.

    Args:
        folder: where the code is written; created.
        statement: it may use `os`, `time`, `objective` (such as ``con/con``) and `epoch` (from 0).
    """
    return run_by_every_process(folder, TAMPERED.replace("STATEMENT", statement))


def run_by_every_process(folder: Path, code: str) -> dict[str, str]:
    """An environment in which every Python process runs some code when it starts.

    Args:
        folder: where the code is written; created.
        code: a module.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def attempts(folder: Path, stage: str = "frozen") -> dict[str, list[dict[str, Any]]]:
    """The records of all attempts at a stage's trainings, by cell."""
    found = {}
    for path in sorted((folder / "goal-sweep-store" / "cells").glob(f"*/{stage}-*/attempts")):
        records = sorted(path.glob("*.json"), key=lambda record: int(record.stem))
        found[path.parent.parent.name] = [json.loads(record.read_text()) for record in records]
    return found


def poison(folder: Path) -> str:
    """Put NaN into the saved state of one cell. Returns the cell's id."""
    path = saved_state(folder, "*")
    tensors, state = read_checkpoint(path)
    tensors["heads.image.fc.weight"].fill_(float("nan"))
    write_checkpoint(path, tensors, state)
    return path.parent.parent.name


def saved_state(folder: Path, cell: str) -> Path:
    """The newest state of an unfinished frozen training; of the first cell for ``*``."""
    first = sorted(folder.glob(f"goal-sweep-store/cells/{cell}/frozen-*"))[0]
    return max(first.glob("last.*safetensors"), key=lambda path: path.stat().st_mtime_ns)


def records_of(folder: Path) -> dict[str, list[Any]]:
    """The history of every finished training, without times, by cell and stage."""
    found = {}
    for path in _result_files(folder):
        stated = json.loads(path.read_text())["files"]["metrics.jsonl"]["name"]
        rows = [json.loads(line) for line in (path.parent / stated).read_text().splitlines()]
        found[f"{path.parent.parent.name}/{path.parent.name}"] = [
            {key: value for key, value in row["metrics"].items() if not key.startswith(("time/", "system/"))}
            for row in rows
        ]
    return found


def check_mlflow(folder: Path, epochs: int = EPOCHS) -> None:
    """Check that there is one parent run, one run for each cell and stage, and no (metric, step) twice."""
    client = MlflowClient(f"sqlite:///{folder / 'goal-sweep-store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    runs = client.search_runs([experiment.experiment_id])
    assert Counter(run.data.tags["goal.role"] for run in runs) == {"sweep": 1, "report": 4}
    cells = [run for run in runs if run.data.tags["goal.role"] == "report"]
    assert {run.data.tags["goal.status"] for run in cells} == {"done"}
    for run in cells:
        last = epochs if run.data.tags["goal.stage"] == "frozen" else 1
        steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "val/rsum")]
        assert sorted(steps) == list(range(1, last + 1))
