"""A tracking database for tests, and what they read from it."""

import shutil
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from goal_sweep.runners.results import update_results
from goal_sweep.runners.store import Store, TrainingFolder
from goal_sweep.runners.tracking import experiment as names
from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker
from goal_sweep.sweeps import ResolvedSweep, ResourceConfig
from tests.helpers.sweep_cases import resolved

SWEEP = resolved("con/con", "sig-ms/cir", resources=ResourceConfig(max_attempts=1))
"""A sweep of two trainings, which a test tracks in a database of its own."""
TRAINING = SWEEP.trainings[0]
KEY = TRAINING.key
ALONE = resolved("con/con", resources=SWEEP.config.resources)
"""The same sweep with its first training only."""


def database(empty: Path, folder: Path) -> str:
    """The URI of a copy of an empty database."""
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

    def child(self, key: str = KEY) -> Any:
        """The run of a training."""
        (found,) = [run for run in self.children if run.data.tags[names.STAGE_KEY] == key]
        return found

    def history(self, key: str = KEY) -> dict[str, list[tuple[int, float]]]:
        """Step and value of all points of each metric of a training's run."""
        run = self.child(key)
        return {
            metric: [(point.step, point.value) for point in self.client.get_metric_history(run.info.run_id, metric)]
            for metric in run.data.metrics
        }

    def dump(self) -> Any:
        """All that can be compared."""
        found = []
        for run in [*self.parents, *self.children]:
            data = [sorted(part.items()) for part in (run.data.tags, run.data.params)]
            history = {metric: self.client.get_metric_history(run.info.run_id, metric) for metric in run.data.metrics}
            points = [(m.key, m.step, m.value, m.timestamp) for metric in sorted(history) for m in history[metric]]
            info, is_parent = run.info, run in self.parents
            ended = None if is_parent else info.end_time  # which is that of the last launch or sync
            found.append((info.run_id, info.run_name, info.status, info.start_time, ended, data, points))
        return sorted(found)


def folder_of(store: Store, which: int = 0) -> TrainingFolder:
    """The folder of a training of `SWEEP`."""
    return store.folder(SWEEP.trainings[which])


def synced(uri: str, store: Store, sweep: ResolvedSweep = SWEEP) -> Content:
    """What MLflow holds after everything was brought up to date."""
    tracker, table = MlflowTracker(uri, sweep.config.name, live=False), update_results(store, sweep)
    tracker.catch_up(table)
    tracker.finish(table)
    return Content(uri, sweep.config.name)
