"""Launch a small two-stage sweep in this process: real driver, worker, trainer and store, without Ray and MLflow."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.launch.remaining.plan import LaunchOptions
from rich.console import Console

from goal_sweep.runners.execution.capacity import Machine
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch import launch as launch_module
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import LaunchOutcome, launch_sweep
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.runners.results import update_results
from goal_sweep.sweeps import Training

if TYPE_CHECKING:
    import pytest

SWEEP = """
name: tiny
data: {format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: 3, lr: 1e-3, batch_size: 16, warmup_epochs: 1}
  - {name: finetune, epochs: 1, lr: 1e-4, batch_size: 16}
execution: {sharing: trunk, cells_per_unit: 0}
"""


class InProcess:
    """Stands for Ray: runs the units one after the other in this process."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.arguments = arguments

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def machines(self) -> list[Machine]:
        return [Machine(id="here", host="here", address="127.0.0.1", resources={"CPU": 1.0})]

    def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
        left = deque(jobs)
        while left:
            job = left.popleft()
            observer.started(job)
            run_unit(job, observer.events)
            left.extend(observer.finished(job))


class NoTracking:
    """Stands for MLflow: accepts everything and keeps nothing but the results table in the store."""

    def __init__(self, *of: Any, **options: object) -> None:
        self._of = of
        self.trouble = ""

    def __enter__(self) -> NoTracking:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def wait_open(self) -> None:
        return

    def sync(self, *arguments: object) -> None:
        return

    limit = sync

    def sync_all(self, *arguments: object, **options: object) -> bool:
        if self._of:
            sweep, store = self._of
            update_results(store, sweep)
        return True


def sweep_in(folder: Path, *overrides: str) -> OpenedSweep:
    """Open the sweep with its results in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.yaml"
    path.write_text(SWEEP)
    return open_sweep(str(path), [f"store={folder / 'store'}", *overrides])


def launch(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, options: LaunchOptions | None = None) -> LaunchOutcome:
    """Launch a sweep."""
    monkeypatch.setattr(launcher, "RayUnits", InProcess)
    monkeypatch.setattr(launch_module, "SweepTracking", NoTracking)
    console = Console(quiet=True)
    return launch_sweep(sweep, options or LaunchOptions(), console, lambda *words: " ".join(words))


def results(sweep: OpenedSweep, among: Collection[Training] | None = None) -> dict[str, Any]:
    """The numbers of every finished training, or of those of some: its result and its history, without times."""
    found = {}
    for training in sweep.trainings if among is None else among:
        folder = sweep.store.folder(training)
        result = folder.result()
        if result is not None:
            history = [(record["epoch"], _timeless(record["metrics"])) for record in folder.records()]
            found[training.name] = (_timeless(result["metrics"]), result["best_epoch"], history)
    return found


def _timeless(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "system/"))}
