"""A tracking database for tests, and what they read from it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from goal_sweep.runners.tracking.sync import SweepTracking
from mlflow import MlflowClient

from goal_sweep.runners.store import Store, TrainingFolder
from goal_sweep.runners.tracking import schema as names
from goal_sweep.sweeps import ResolvedSweep, ResourceConfig
from tests.helpers.sweep_cases import resolved

SWEEP = resolved("con/con", "sig-ms/cir", resources=ResourceConfig(max_attempts=1))
"""A sweep of two trainings, which a test tracks in a database of its own."""
TRAINING = SWEEP.trainings[0]
KEY = TRAINING.key
ALONE = resolved("con/con", resources=SWEEP.config.resources)
"""The same sweep with its first training only."""


def tracked_at(uri: str, sweep: ResolvedSweep = SWEEP) -> ResolvedSweep:
    """The same sweep with another tracking URI."""
    return replace(sweep, config=replace(sweep.config, tracking=uri))


def database(empty: Path, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty, folder / "mlflow.db")
    return f"sqlite:///{folder / 'mlflow.db'}"


class Content:
    """Everything in the experiment, read by another client."""

    def __init__(self, uri: str, name: str = "s") -> None:
        self.client = MlflowClient(uri)
        experiment = self.client.get_experiment_by_name(name)
        assert experiment is not None
        self.runs = list(self.client.search_runs([experiment.experiment_id]))
        self.parents = [run for run in self.runs if run.data.tags.get(names.ROLE) == "sweep"]
        self.children = [run for run in self.runs if run.data.tags.get(names.ROLE) == "report"]

    def child(self, key: str) -> Any:
        (found,) = [run for run in self.children if run.data.tags[names.STAGE_KEY] == key]
        return found

    def history(self, key: str) -> dict[str, list[tuple[int, float, int]]]:
        run = self.child(key)
        return {
            metric: [(m.step, m.value, m.timestamp) for m in self.client.get_metric_history(run.info.run_id, metric)]
            for metric in run.data.metrics
        }

    def dump(self) -> Any:
        found = []
        for run in [*self.parents, *self.children]:
            data = [sorted(part.items()) for part in (run.data.tags, run.data.params)]
            history = {metric: self.client.get_metric_history(run.info.run_id, metric) for metric in run.data.metrics}
            points = [(m.key, m.step, m.value, m.timestamp) for metric in sorted(history) for m in history[metric]]
            info = run.info
            found.append((info.run_id, info.run_name, info.status, info.start_time, info.end_time, data, points))
        return sorted(found)


def folder_of(store: Store, which: int = 0) -> TrainingFolder:
    return store.folder(SWEEP.trainings[which])


def synced(uri: str, store: Store, sweep: ResolvedSweep = SWEEP, **settings: Any) -> Content:
    """What MLflow holds after everything was brought up to date."""
    with SweepTracking(tracked_at(uri, sweep), store, **settings) as tracking:
        assert tracking.sync_all(wait=30)
        assert tracking.trouble == ""
    return Content(uri)


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


class DyingClient:
    """A client whose process dies right before or right after one of its writes."""

    def __init__(self, client, dies_at):
        self._client, self._left = client, dies_at

    def __getattr__(self, name):
        original = getattr(self._client, name)
        if name.startswith(("get", "search", "_")):
            return original

        def write(*args, **kwargs):
            self._tick()
            done = original(*args, **kwargs)
            self._tick()
            return done

        return write

    def _tick(self):
        self._left -= 1
        if self._left == 0:
            raise Dead
