"""The runs of one sweep in an MLflow experiment. Every operation is safe to repeat: the second time changes nothing."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mlflow.entities import Metric, Param, RunTag

from goal_core.checkpoints import TRIPLETS
from runners.store import State
from runners.tracking import schema as names
from runners.tracking.values import stale_tags, sweep_tags, training_dataset, training_params, training_tags
from sweeps import ResolvedSweep, Training

_RUN_STATUS: Mapping[str, str] = {"waiting": "KILLED", "running": "RUNNING", "done": "FINISHED", "failed": "FAILED"}
MAX_BATCH = 1000
"""Number of metrics that MLflow accepts in one call."""
_MAX_TAG = 4000
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """The metrics of one step."""

    step: int
    metrics: Mapping[str, float]
    time: float
    """Seconds since 1970. A point always has the same time, so the database itself drops a repeated point."""


@dataclass(slots=True, kw_only=True)
class TrackedRun:
    """What is known of a run in MLflow."""

    id: str
    status: str
    """MLflow's own status of the run."""
    started: int
    """Milliseconds since 1970."""
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of each metric, as read or written since."""
    logged: set[tuple[str, int]] | None = None
    """(metric, step) of the points that the run has; None until its history is read."""
    datasets: set[str] = field(default_factory=set)
    """Digests of the datasets that it names as its input."""
    skipped: set[str] = field(default_factory=set)
    """Points that were not finite, as ``metric@step``."""


class RunWriter:
    """Writes the parent run of a sweep and a run for each of its trainings.

    Args:
        client: an ``MlflowClient``, or a substitute in tests.
        experiment_id: the sweep's experiment.
        sweep: the sweep that the parent run describes.
    """

    def __init__(self, client: Any, experiment_id: str, sweep: ResolvedSweep) -> None:
        self._client, self._experiment, self._sweep = client, experiment_id, sweep
        self._runs: dict[str, TrackedRun] = {}
        self._parent_id, self._parent_status, self._trail = "", "", ""
        self._read()

    @property
    def runs(self) -> Mapping[str, TrackedRun]:
        """Every training's run in the experiment, by stage key, including trainings that are no longer in the sweep."""
        return self._runs

    def _read(self) -> None:
        """Read every run of the experiment, create the parent run if there is none, and delete duplicates."""
        parents, found = [], []
        for run in self._pages():
            role = run.data.tags.get(names.ROLE)
            if role == names.ROLE_SWEEP:
                parents.append(run)
            elif role in (names.ROLE_CELL, names.ROLE_CANDIDATE) and names.STAGE_KEY in run.data.tags:
                found.append(run)
        self._open_parent(parents)
        # Keep a finished run, or else the oldest. Duplicates can only come from restoring a deleted experiment.
        for run in sorted(found, key=lambda run: (run.info.status != "FINISHED", run.info.start_time)):
            key = run.data.tags[names.STAGE_KEY]
            if key in self._runs:
                self._client.delete_run(run.info.run_id)
                continue
            tags = dict(run.data.tags)
            self._runs[key] = TrackedRun(
                id=run.info.run_id,
                status=run.info.status,
                started=run.info.start_time,
                tags=tags,
                params=dict(run.data.params),
                metrics=dict(run.data.metrics),
                datasets={one.dataset.digest for one in run.inputs.dataset_inputs},
                skipped=_names_in(tags.get(names.NONFINITE, "[]")),
            )

    def _pages(self) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=_PAGE, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _open_parent(self, found: list[Any]) -> None:
        tags = sweep_tags(self._sweep)
        if not found:
            run = self._client.create_run(self._experiment, run_name=self._sweep.config.name, tags=tags)
            self._parent_id, self._parent_status = run.info.run_id, run.info.status
            return
        first, *others = sorted(found, key=lambda run: run.info.start_time)
        for other in others:
            self._client.delete_run(other.info.run_id)
        self._parent_id, self._parent_status = first.info.run_id, first.info.status
        self._trail = first.data.tags.get(names.TRAIL, "")
        self._set_tags(first.info.run_id, {key: text for key, text in tags.items() if first.data.tags.get(key) != text})
        for tag in stale_tags(self._sweep, first.data.tags):
            self._client.delete_tag(first.info.run_id, tag)

    def set_parent_status(self, status: Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]) -> None:
        """Set the status of the parent run, unless it has this status already."""
        if status == self._parent_status:
            return
        self._set_run_status(self._parent_id, status, None)
        self._parent_status = status

    def state(self, training: Training) -> str:
        """The `goal.status` of a training's run; empty if there is no run."""
        run = self._runs.get(training.key)
        return "" if run is None else run.tags.get(names.STATUS, "")

    def imported_from(self, training: Training) -> str:
        """The `goal.imported` of a training's run; empty if it has none."""
        run = self._runs.get(training.key)
        return "" if run is None else run.tags.get(names.IMPORTED, "")

    def is_settled(
        self, training: Training, metrics: Collection[str], *, imported: str = "", checkpoint: str = ""
    ) -> bool:
        """Whether a training's run is finished and has all its tags, parameters, final metrics and its dataset.

        Args:
            training: the training.
            metrics: names of its final metrics.
            imported: the archive that they came from; empty if they were computed here.
            checkpoint: path of its weights in the results folder; empty if there are none.
        """
        run = self._runs.get(training.key)
        return (
            run is not None
            and self.state(training) == names.DONE
            and self.imported_from(training) == imported
            and run.tags.get(names.CHECKPOINT, "") == checkpoint
            and names.USER in run.tags
            and training.cell.data_fingerprint in run.datasets
            and run.status == _RUN_STATUS[names.DONE]
            and training_tags(training).items() <= run.tags.items()
            and training_params(training).keys() <= run.params.keys()
            and set(metrics) <= run.metrics.keys()
        )

    def has_triplets(self, training: Training, sha256: str = "", *, look: bool = False) -> bool:
        """Whether a training's run has its triplet record.

        Args:
            training: the training.
            sha256: digest that the record must have; empty accepts any.
            look: also check that the artifact itself exists, because the tag remains when somebody deletes it.
        """
        run = self._runs.get(training.key)
        tag = "" if run is None else run.tags.get(names.TRIPLETS, "")
        if run is None or not tag or sha256 not in ("", tag):
            return False
        return not look or bool(self._client.list_artifacts(run.id, names.TRIPLETS_FOLDER))

    def attach_triplets(self, training: Training, path: Path, sha256: str) -> None:
        """Attach the triplet record to a training's run, replacing an older one."""
        run = self._runs[training.key]
        with tempfile.TemporaryDirectory(prefix="goal-sweep-") as folder:
            named = shutil.copyfile(path, Path(folder) / TRIPLETS)  # MLflow names an artifact as its file
            self._client.log_artifact(run.id, str(named), artifact_path=names.TRIPLETS_FOLDER)
        self._update_tags(run, {names.TRIPLETS: sha256})

    def attach_trail(self, content: bytes, *, look: bool = False) -> None:
        """Attach the trail of the sweep's search to the parent run, unless it is there.

        Args:
            content: of the file.
            look: also check that the artifact itself exists.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        if self._trail == sha256 and not (look and not self._has_trail()):
            return
        with tempfile.TemporaryDirectory(prefix="goal-sweep-") as folder:
            named = Path(folder) / names.TRAIL_FILE
            named.write_bytes(content)
            self._client.log_artifact(self._parent_id, str(named))
        self._set_tags(self._parent_id, {names.TRAIL: sha256})
        self._trail = sha256

    def _has_trail(self) -> bool:
        return any(one.path == names.TRAIL_FILE for one in self._client.list_artifacts(self._parent_id))

    def leave_grids(self, trainings: Iterable[Training]) -> None:
        """Mark the runs of an earlier choice, and of a sweep that does not tune any more.

        Args:
            trainings: the trainings of the sweep.
        """
        asked = {training.key: training for training in trainings}
        for key, run in self._runs.items():
            if names.GRID not in run.tags:
                continue
            if key not in asked:
                self._update_tags(run, {names.GRID: names.NO_GRID})
            elif not asked[key].grids:
                self._client.delete_tag(run.id, names.GRID)
                del run.tags[names.GRID]

    def contradicts(self, training: Training, metrics: Mapping[str, float]) -> bool:
        """Whether the final metrics of a training's run differ from these, as after a repeated training."""
        run = self._runs.get(training.key)
        return run is not None and any(
            key in metrics and not math.isclose(value, metrics[key], rel_tol=1e-9)
            for key, value in run.metrics.items()
            if key.startswith(names.TEST_PREFIX)
        )

    def discard(self, training: Training) -> None:
        """Delete a training's run, because the store no longer has its numbers. MLflow can restore it."""
        run = self._runs.pop(training.key, None)
        if run is not None:
            self._client.delete_run(run.id)

    def running(self) -> dict[str, tuple[str, str]]:
        """Cell id and stage of the runs that MLflow shows as running, by stage key."""
        return {
            key: (run.tags[names.CELL], run.tags[names.STAGE])
            for key, run in self._runs.items()
            if run.status == _RUN_STATUS["running"] and run.tags.keys() >= {names.CELL, names.STAGE}
        }

    def end_abandoned(self, key: str) -> None:
        """Mark a run as interrupted, because no driver trains it any more."""
        run = self._runs[key]
        self._update_tags(run, {names.STATUS: names.WAITING})
        self._set_run_status(run.id, _RUN_STATUS["waiting"], None)
        run.status = _RUN_STATUS["waiting"]

    def ensure(self, training: Training, started: float, user: str) -> None:
        """Create a training's run unless it exists, and bring its tags, parameters and dataset up to date.

        Args:
            training: the training.
            started: start of its first attempt, in seconds since 1970.
            user: who trained it. A run that names somebody keeps the name.
        """
        run = self._runs.get(training.key)
        tags, params = training_tags(training), training_params(training)
        if run is None or names.USER not in run.tags:
            tags[names.USER] = user
        if run is None:
            tags |= {names.STATUS: names.RUNNING, names.PARENT_RUN: self._parent_id}
            began = int(started * 1000)
            made = self._client.create_run(self._experiment, start_time=began, run_name=training.name, tags=tags)
            run = TrackedRun(id=made.info.run_id, status=made.info.status, started=began, tags=dict(tags), logged=set())
            self._runs[training.key] = run
        self._update_tags(run, tags)
        missing = {key: text for key, text in params.items() if key not in run.params}
        if missing:
            made = [Param(key, text) for key, text in missing.items()]
            self._client.log_batch(run.id, params=made)
            run.params |= missing
        if training.cell.data_fingerprint not in run.datasets:
            self._client.log_inputs(run.id, [training_dataset(training)])
            run.datasets.add(training.cell.data_fingerprint)

    def log(self, training: Training, points: Iterable[Point]) -> None:
        """Add the points that a training's run lacks. Values that are not finite are named in a tag instead.

        MLflow would store an infinity as 1.8e308, which looks like any other number in a table.
        """
        run = self._runs[training.key]
        if run.logged is None:
            run.logged = self._history(run)
        fresh = [
            (point, key, value)
            for point in points
            for key, value in point.metrics.items()
            if (key, point.step) not in run.logged
        ]
        run.skipped |= {f"{key}@{point.step}" for point, key, value in fresh if not math.isfinite(value)}
        finite = [(point, key, value) for point, key, value in fresh if math.isfinite(value)]
        for start in range(0, len(finite), MAX_BATCH):
            part = finite[start : start + MAX_BATCH]
            metrics = [Metric(key, value, int(point.time * 1000), point.step) for point, key, value in part]
            run.metrics |= {key: value for _, key, value in part}
            logged, run.logged = run.logged, None  # after an error it is unknown what arrived, so read it again
            self._client.log_batch(run.id, metrics=metrics)
            run.logged = logged | {(key, point.step) for point, key, _ in part}
        self._tag_skipped(run)

    def set_state(
        self,
        training: Training,
        state: State,
        *,
        reason: str = "",
        ended: float | None = None,
        tags: Mapping[str, str] | None = None,
        imported: str = "",
        checkpoint: str = "",
    ) -> None:
        """Set the status of a training's run, unless it has it already. Call this after everything else is written.

        Args:
            training: the training.
            state: its state; `waiting` means interrupted, which MLflow shows as KILLED.
            reason: why it failed.
            ended: end of the run in seconds since 1970, if it is over; now if not given.
            tags: more tags of the run, such as those that say which code trained it.
            imported: the archive that its numbers came from; empty if they were computed here.
            checkpoint: path of its weights in the results folder; empty if there are none.
        """
        run = self._runs[training.key]
        tags = {names.STATUS: str(state), **(tags or {})}
        if checkpoint or names.CHECKPOINT in run.tags:
            tags[names.CHECKPOINT] = checkpoint
        if imported or names.IMPORTED in run.tags:
            tags[names.IMPORTED] = imported
        if state == names.FAILED:
            tags[names.REASON] = reason[:_MAX_TAG]
        elif names.REASON in run.tags:
            self._client.delete_tag(run.id, names.REASON)
            del run.tags[names.REASON]
        self._update_tags(run, tags)
        if run.status != _RUN_STATUS[state]:
            self._set_run_status(run.id, _RUN_STATUS[state], ended)
            run.status = _RUN_STATUS[state]

    def _history(self, run: TrackedRun) -> set[tuple[str, int]]:
        return {(key, metric.step) for key in run.metrics for metric in self._client.get_metric_history(run.id, key)}

    def _tag_skipped(self, run: TrackedRun) -> None:
        if not run.skipped:
            return
        text = json.dumps(sorted(run.skipped))
        if len(text) > _MAX_TAG:
            text = json.dumps([*sorted(run.skipped)[:50], f"and {len(run.skipped) - 50} more"])
        self._update_tags(run, {names.NONFINITE: text})

    def _update_tags(self, run: TrackedRun, tags: Mapping[str, str]) -> None:
        changed = {key: text for key, text in tags.items() if run.tags.get(key) != text}
        self._set_tags(run.id, changed)
        run.tags |= changed

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        if tags:
            self._client.log_batch(run_id, tags=[RunTag(key, text) for key, text in tags.items()])

    def _set_run_status(self, run_id: str, status: str, ended: float | None) -> None:
        if status == "RUNNING":
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, int((time.time() if ended is None else ended) * 1000))


def _names_in(text: str) -> set[str]:
    try:
        return {str(name) for name in json.loads(text)}
    except (ValueError, TypeError):
        return set()
