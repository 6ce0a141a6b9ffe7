"""The trackers of `tracking.also` (`sweeps.trackers.Tracker`), with MLflow's names of runs, parameters and metrics.

Each imports its library, which need not be installed, when it is made.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.tracking import experiment
from goal_sweep.sweeps.trackers import BuiltIn, Tracker

_PATIENCE_S = 15.0
"""Seconds that a server of W&B may take. What it has not got then is in the run's folder, for `wandb sync`."""


class Wandb:
    """A run for each training in the sweep's project, with its files in the store's ``wandb``."""

    def __init__(self, sweep: str, store: Path) -> None:
        import wandb

        wait = {"init_timeout": _PATIENCE_S, "finish_timeout": _PATIENCE_S, "finish_timeout_raises": True}
        settings = wandb.Settings(console="off", silent=True, **wait)  # it would print over the view
        if wandb.setup(settings).settings.mode == "online" and not wandb.login(prompt=False, verify=False):
            raise GoalError("no login; run wandb login, or set WANDB_MODE=offline and run wandb sync later")
        options = {"project": sweep, "dir": os.fspath(store), "settings": settings}
        self._init: Any = partial(wandb.init, resume="allow", reinit="create_new", **options)
        self._runs: dict[str, Any] = {}

    def begin(self, training: str, about: Mapping[str, Any]) -> None:
        if training not in self._runs:  # else it is tried again
            names = {"id": training, "name": experiment.name_of(about), "group": about["cell"]}
            self._runs[training] = self._init(**names, config=experiment.params_of(about))

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        step = experiment.logged(record["epoch"], record["metrics"], record["time"])
        self._runs[training].log(dict(step.metrics), step=step.step)

    def end(self, training: str, row: Mapping[str, Any]) -> None:
        run, is_done = self._runs.pop(training), row["status"] == "done"
        run.summary.update(dict(experiment.final_of(row).metrics) if is_done else {})
        run.finish(exit_code=0 if is_done else 1)


class TensorBoard:
    """A folder for each training below the store's ``tensorboard/SWEEP``. torch's own writer would import torch."""

    def __init__(self, sweep: str, store: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._hparams, self._writer = Event, Summary, hparams_pb, EventFileWriter
        self._folder, self._writers = store / "tensorboard" / sweep, dict[str, Any]()

    def begin(self, training: str, about: Mapping[str, Any]) -> None:
        if training not in self._writers:  # else it is tried again
            name = f"{experiment.name_of(about).replace('/', '-')} {training[:8]}"
            self._writers[training] = self._writer(str(self._folder / name))
            params = self._hparams(experiment.params_of(about), trial_id=training)
            self._writers[training].add_event(self._event(wall_time=time.time(), summary=params))

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        self._write(training, experiment.logged(record["epoch"], record["metrics"], record["time"]))

    def end(self, training: str, row: Mapping[str, Any]) -> None:
        if row["status"] == "done":
            self._write(training, experiment.final_of(row))
        self._writers.pop(training).close()

    def _write(self, training: str, step: experiment.LoggedStep) -> None:
        summary = self._summary(value=[{"tag": name, "simple_value": value} for name, value in step.metrics.items()])
        self._writers[training].add_event(self._event(wall_time=step.time_ms / 1000, step=step.step, summary=summary))
        self._writers[training].flush()


BUILT_IN: Mapping[BuiltIn, Callable[[str, Path], Tracker]] = {"wandb": Wandb, "tensorboard": TensorBoard}
"""Each is called with the sweep's name and the folder for files."""
