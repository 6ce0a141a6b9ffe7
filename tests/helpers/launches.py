"""Launches of a tiny sweep that can be disturbed: in a process of their own with Ray, or as commands in this one."""

import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from goal_sweep.runners.cli import app
from tests.helpers import product
from tests.helpers.blank_figures import blank_figures
from tests.helpers.product import TINY as SWEEP
from tests.helpers.product import command, num_epochs, results, run_by_every_process
from tests.helpers.product import histories as records_of
from tests.helpers.product import run as goal_sweep
from tests.helpers.until import until

__all__ = ["SWEEP", "command", "goal_sweep", "records_of", "results", "run_by_every_process"]
EPOCHS = 30
"""Of the first stage, so that a launch can be disturbed in it."""


def check_mlflow(folder: Path, epochs: int = EPOCHS) -> None:
    """Check that MLflow has every training once, with the store's numbers."""
    product.check_mlflow(folder, epochs)


def check_equal(folder: Path, unbroken: Path, *, in_mlflow: bool = True) -> None:
    """Check that the numbers are the unbroken launch's, everywhere, and that nothing has counted."""
    assert (results(folder), records_of(folder)) == (results(unbroken), records_of(unbroken))
    assert failures(folder) == []
    if in_mlflow:
        check_mlflow(folder)


def sweep_in(folder: Path, epochs: int = EPOCHS) -> Path:
    """A folder with the tiny sweep."""
    return product.tiny_in(folder, epochs)


def goal_sweep_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with blank figures. What trains needs `in_process.without_ray`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), blank_figures():
        status = app.run(list(arguments))
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


class Launch:
    """A launch in a process of its own, and what it has said."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder, self._log = folder, folder / f"launch-{time.monotonic_ns()}.log"
        own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        words = command("launch", "tiny.yaml", *arguments)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                words, cwd=folder, env={**own, **(environment or {})}, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, text: str, times: int = 1) -> None:
        """Wait until it has said something so many times."""
        until(lambda: self.said.count(text) >= times or self._has_ended(), text, 300)
        assert self.said.count(text) >= times, self.said

    def saves(self) -> None:
        """Wait until it has saved another epoch of both cells."""
        before = num_epochs(self.folder)
        until(lambda: num_epochs(self.folder) >= before + 2 or self._has_ended(), "epoch", 300)
        assert self.process.poll() is None, self.said

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def ends(self, status: int = 0, within: float = 600) -> None:
        """Wait for its end."""
        assert self.process.wait(timeout=within) == status, self.said

    def children(self, text: str) -> list[psutil.Process]:
        """Its living processes below the first whose command line contains a text."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    found += [child] if text in " ".join(child.cmdline()) else []
        return found

    def child(self, text: str) -> psutil.Process:
        """The first of these, which may begin in a moment."""
        until(lambda: self.children(text), text)
        return self.children(text)[0]

    def end(self) -> None:
        """Kill it and all that it started."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid:
                    process.kill()
        self.process.wait(60)


WORKER = "ray::Implicit"
"""What the command line of a worker contains."""
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

    It may use `os`, `time`, `objective` (such as ``con/con``) and `epoch` (from 0).
    """
    return run_by_every_process(folder, TAMPERED.replace("STATEMENT", statement))


def attempts(folder: Path, stage: str = "frozen") -> dict[str, list[dict[str, Any]]]:
    """The records of all attempts at a stage's trainings, by cell."""
    found = {}
    for path in sorted((folder / product.STORE / "cells").glob(f"*/{stage}-*/attempts")):
        records = sorted(path.glob("*.json"), key=lambda record: int(record.stem))
        found[path.parent.parent.name] = [json.loads(record.read_text()) for record in records]
    return found


def failures(folder: Path) -> list[str]:
    """The reasons of all failures that count against a training."""
    records = (one for each in product.attempts(folder).values() for one in each)
    return [one["reason"] for one in records if one["counted"]]
