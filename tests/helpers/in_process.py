"""Launch a small two-stage sweep in this process: real launch, worker, trainer and store, without Ray and MLflow."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from rich.console import Console

from goal_sweep.goal_core.training import TrainingEvent
from goal_sweep.runners.execution.job import Death, UnfitMachineError, UnitJob, Work
from goal_sweep.runners.execution.session import Machine, Resources
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch import launch as launch_module
from goal_sweep.runners.launch import loop
from goal_sweep.runners.launch.launch import LaunchOutcome, launch_sweep
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.runners.launch.remaining import LaunchOptions
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.sweeps import Training, load_sweep
from tests.helpers.product import TINY

SWEEP = TINY.replace("EPOCHS", "3").replace("num_train: 24", "num_train: 6").replace("batch_size: 16", "batch_size: 8")
"""The tiny sweep with a quarter of the images in batches of half the size: half as many steps, in less time."""
Train = Callable[[UnitJob, Send], None]
"""What a worker does with a unit."""


class Dies(BaseException):
    """The end of a worker: nothing in it sees this coming."""

    def __init__(self, kind: Literal["died", "memory", "machine"] = "died") -> None:
        self.death = Death(kind, "what Ray says of it")


class OneMachine:
    """Stands for Ray, with one machine."""

    def __init__(self, address: str | None, need: Resources, patience_s: int) -> None:
        self.address, self.need = address, need

    def __enter__(self) -> OneMachine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        return

    def machines(self) -> list[Machine]:
        return [Machine(id="here", resources={"CPU": 1.0})]


class NoTracking:
    """Stands for MLflow: accepts everything and keeps nothing."""

    mlflow = SimpleNamespace(trouble="", check=lambda seconds: None)
    threads = (mlflow,)

    def __init__(self, *of: object, **options: object) -> None:
        self.begin = self.epoch = self.end = self.catch_up = self.finish = self.close = lambda *told: None

    def __enter__(self) -> NoTracking:
        return self

    def __exit__(self, *error: object) -> None:
        return


def without_ray(patch: pytest.MonkeyPatch, train: Train = run_unit) -> None:
    """Let launches of this process train here, one unit after the other, and wait for nothing."""

    def run_units(session: OneMachine, work: Work, room: int) -> None:
        while not (work.is_over or work.stopping):
            work.step()
            if (start := work.next()) is None:
                time.sleep(0.01)
                continue

            node = next(one.id for one in session.machines() if one.id not in start.avoid)

            def send(events: Sequence[TrainingEvent] = (), *, said: Any = (start.number, node), **more: Any) -> None:
                work.reported(said[0], {"node": said[1], "events": [*events], **more})
                work.step()

            death = None
            try:
                send()
                train(start.job, send)
            except UnfitMachineError as error:
                send(unfit=str(error))
            except Dies as end:
                death = end.death
            work.ended(start.number, death)

    patch.setattr(launch_module, "RaySession", OneMachine)
    patch.setitem(sys.modules, "goal_sweep.runners.execution.units", SimpleNamespace(run_units=run_units))
    patch.setattr(loop, "PAUSE_S", 0.001)
    patch.setattr(loop, "LOOK_S", 0.05)


def sweep_in(folder: Path, *overrides: str) -> OpenedSweep:
    """Open the sweep with its results in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.yaml"
    path.write_text(SWEEP)
    return open_sweep(load_sweep(str(path), [f"store={folder / 'store'}", *overrides]))


def launch(
    sweep: OpenedSweep,
    monkeypatch: pytest.MonkeyPatch,
    options: LaunchOptions | None = None,
    *,
    train: Train = run_unit,
    console: Console | None = None,
) -> LaunchOutcome:
    """Launch a sweep. ``train`` is what a worker does with a unit; without a console nothing is shown."""
    with monkeypatch.context() as patch, StopSignals() as signals:
        without_ray(patch, train)
        patch.setattr(launch_module, "Tracking", NoTracking)
        shown = console or Console(quiet=True)
        return launch_sweep(sweep, options or LaunchOptions(), shown, lambda *words, **_: " ".join(words), signals)


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


def counted(sweep: OpenedSweep) -> list[str]:
    """The reasons of all failures that count against a training."""
    attempts = (one for training in sweep.trainings for one in sweep.store.folder(training).attempts.all())
    return [attempt.reason for attempt in attempts if attempt.counted]


def _timeless(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "system/"))}
