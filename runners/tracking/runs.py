"""The runs of one sweep in an MLflow experiment, written so that doing anything twice changes nothing.

It knows MLflow by the client it is handed; `runners.tracking.client` is the file that imports it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from runners.tracking import schema as names
from runners.tracking.values import TrackedSweep, cell_params, cell_tags
from sweeps import Cell, CellStage

Status = Literal["waiting", "running", "done", "failed"]
_RUN_STATUS = {names.WAITING: "KILLED", names.RUNNING: "RUNNING", names.DONE: "FINISHED", names.FAILED: "FAILED"}
_MAX_BATCH = 1000
_MAX_TAG = 4000
_PAGE = 1000


class MetricMaker(Protocol):
    """Makes the client's metric entity."""

    def __call__(self, key: str, value: float, timestamp: int, step: int) -> Any:
        """The value of a metric at a step; the timestamp is in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entities:
    """The entities of the client's library that are handed to it."""

    metric: MetricMaker
    param: Any
    """Takes key and value."""
    tag: Any
    """Takes key and value."""


@dataclass(frozen=True, slots=True)
class Point:
    """The metrics of one step."""

    step: int
    metrics: Mapping[str, float]
    time: float
    """Seconds since 1970. The same point always has the same time, so the database itself drops a repetition."""


@dataclass(slots=True)
class _Child:
    run_id: str
    status: str
    run_status: str
    tags: dict[str, str]
    params: set[str]
    keys: set[str]
    """Metrics that have values."""
    test: dict[str, float] = field(default_factory=dict)
    """The final metrics that the run had when it was read, or was given since."""
    logged: set[tuple[str, int]] | None = None
    """(metric, step) that the run has; None until its history is read."""
    skipped: set[str] = field(default_factory=set)


class RunWriter:
    """The parent run and the child runs of a sweep.

    Args:
        client: an ``MlflowClient``.
        entities: MLflow's entities.
        experiment_id: the sweep's experiment.
        sweep: what the parent run says.
    """

    def __init__(self, client: Any, entities: Entities, experiment_id: str, sweep: TrackedSweep) -> None:
        self._client, self._make, self._experiment, self._sweep = client, entities, experiment_id, sweep
        self._children: dict[str, _Child] = {}
        self._parent_id, self._parent_status = "", ""
        self._read()

    @property
    def keys(self) -> frozenset[str]:
        """The stage keys that have a run."""
        return frozenset(self._children)

    def _read(self) -> None:
        """Read every run of the experiment, make the parent if there is none, and put away duplicates."""
        parents, children = [], []
        for run in self._pages():
            role = run.data.tags.get(names.ROLE)
            if role == names.ROLE_SWEEP:
                parents.append(run)
            elif role == names.ROLE_CELL and names.STAGE_KEY in run.data.tags:
                children.append(run)
        self._open_parent(parents)
        # Best first: a finished one, else the oldest. The others can only come from restoring a deleted experiment.
        for run in sorted(children, key=lambda run: (run.info.status != "FINISHED", run.info.start_time)):
            key = run.data.tags[names.STAGE_KEY]
            if key in self._children:
                self._client.delete_run(run.info.run_id)
                continue
            tags = dict(run.data.tags)
            self._children[key] = _Child(
                run_id=run.info.run_id,
                status=tags.get(names.STATUS, ""),
                run_status=run.info.status,
                tags=tags,
                params=set(run.data.params),
                keys=set(run.data.metrics),
                test={key: value for key, value in run.data.metrics.items() if key.startswith(names.TEST_PREFIX)},
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
        tags = self._sweep.tags()
        if not found:
            run = self._client.create_run(self._experiment, run_name=self._sweep.name, tags=tags)
            self._parent_id, self._parent_status = run.info.run_id, run.info.status
            return
        first, *others = sorted(found, key=lambda run: run.info.start_time)
        for other in others:
            self._client.delete_run(other.info.run_id)
        self._parent_id, self._parent_status = first.info.run_id, first.info.status
        self._set_tags(first.info.run_id, {key: text for key, text in tags.items() if first.data.tags.get(key) != text})

    def set_parent_status(self, status: Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]) -> None:
        """Set how the sweep stands, unless it stands so already."""
        if status == self._parent_status:
            return
        self._set_run_status(self._parent_id, status, None)
        self._parent_status = status

    def attach(self, path: Path, folder: str) -> None:
        """Copy a file, or what is in a folder, to the parent run's artifacts."""
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        log(self._parent_id, str(path), artifact_path=folder)

    def status(self, stage: CellStage) -> str:
        """What the run of a stage says of it, as `goal.status`; empty when there is none."""
        child = self._children.get(stage.key)
        return "" if child is None else child.status

    def is_settled(self, cell: Cell, stage: CellStage) -> bool:
        """Whether the run of a stage is finished, and lacks no tag and no parameter."""
        child = self._children.get(stage.key)
        return (
            child is not None
            and child.status == names.DONE
            and child.run_status == _RUN_STATUS[names.DONE]
            and cell_tags(cell, stage, self._sweep).keys() <= child.tags.keys()
            and cell_params(cell, stage, self._sweep.weights).keys() <= child.params
        )

    def has_triplets(self, stage: CellStage, sha256: str = "", *, look: bool = False) -> bool:
        """Whether the run of a stage has a triplet record.

        Args:
            stage: the stage.
            sha256: of the record; any will do when not given.
            look: look for the artifact itself, which the tag outlives when somebody deletes it.
        """
        child = self._children.get(stage.key)
        tag = "" if child is None else child.tags.get(names.TRIPLETS, "")
        if child is None or not tag or sha256 not in ("", tag):
            return False
        return not look or bool(self._client.list_artifacts(child.run_id, names.TRIPLETS_FOLDER))

    def attach_triplets(self, stage: CellStage, path: Path, sha256: str) -> None:
        """Give the run of a stage its triplet record, in place of an older one."""
        child = self._children[stage.key]
        self._client.log_artifact(child.run_id, str(path), artifact_path=names.TRIPLETS_FOLDER)
        self._set_tags(child.run_id, {names.TRIPLETS: sha256})
        child.tags[names.TRIPLETS] = sha256

    def contradicts(self, stage: CellStage, metrics: Mapping[str, float]) -> bool:
        """Whether the run of a stage has final metrics, and others than these (the cell was trained anew)."""
        child = self._children.get(stage.key)
        return child is not None and any(
            key in metrics and not math.isclose(value, metrics[key], rel_tol=1e-9) for key, value in child.test.items()
        )

    def discard(self, stage: CellStage) -> None:
        """Delete the run of a stage, whose numbers are no longer those of the store (MLflow can restore it)."""
        child = self._children.pop(stage.key, None)
        if child is not None:
            self._client.delete_run(child.run_id)

    def ensure(self, cell: Cell, stage: CellStage, started: float) -> None:
        """Make the run of a stage if there is none.

        Args:
            cell: the cell.
            stage: its stage.
            started: when its first attempt began, in seconds since 1970.
        """
        self._child(cell, stage, started)

    def log(self, cell: Cell, stage: CellStage, points: Iterable[Point]) -> None:
        """Add the points that the run does not have. A NaN or an infinity is named in a tag instead.

        MLflow would turn an infinity into 1.8e308, a number like any other in a table.
        """
        child = self._child(cell, stage)
        if child.logged is None:
            child.logged = self._history(child)
        fresh = [
            (point, key, value)
            for point in points
            for key, value in point.metrics.items()
            if (key, point.step) not in child.logged
        ]
        child.skipped |= {f"{key}@{point.step}" for point, key, value in fresh if not math.isfinite(value)}
        finite = [(point, key, value) for point, key, value in fresh if math.isfinite(value)]
        for start in range(0, len(finite), _MAX_BATCH):
            part = finite[start : start + _MAX_BATCH]
            metrics = [self._make.metric(key, value, int(point.time * 1000), point.step) for point, key, value in part]
            child.keys |= {key for _, key, _ in part}
            logged, child.logged = child.logged, None  # after an error nobody knows what arrived: read again
            self._client.log_batch(child.run_id, metrics=metrics)
            child.logged = logged | {(key, point.step) for point, key, _ in part}
            child.test |= {key: value for _, key, value in part if key.startswith(names.TEST_PREFIX)}
        self._tag_skipped(child)

    def set_status(
        self,
        cell: Cell,
        stage: CellStage,
        status: Status,
        *,
        reason: str = "",
        ended: float | None = None,
        git_commit: str = "",
    ) -> None:
        """Set how a stage stands, last of all that is written about it, unless it stands so already.

        Args:
            cell: the cell.
            stage: its stage.
            status: `waiting` is for an interrupted stage; MLflow shows it as KILLED.
            reason: why it failed.
            ended: when, in seconds since 1970, for a run that is over; now when not given.
            git_commit: of the code that trained it; the launch's when not given.
        """
        child = self._child(cell, stage)
        tags = {names.STATUS: status, **({names.GIT_COMMIT: git_commit} if git_commit else {})}
        if status == names.FAILED:
            tags[names.REASON] = reason[:_MAX_TAG]
        elif names.REASON in child.tags:
            self._client.delete_tag(child.run_id, names.REASON)
            del child.tags[names.REASON]
        self._set_tags(child.run_id, {key: text for key, text in tags.items() if child.tags.get(key) != text})
        child.tags |= tags
        child.status = status
        if child.run_status != _RUN_STATUS[status]:
            self._set_run_status(child.run_id, _RUN_STATUS[status], ended)
            child.run_status = _RUN_STATUS[status]

    def _child(self, cell: Cell, stage: CellStage, started: float | None = None) -> _Child:
        child = self._children.get(stage.key)
        if child is None:
            tags = cell_tags(cell, stage, self._sweep)
            tags |= {names.STATUS: names.RUNNING, names.PARENT_RUN: self._parent_id}
            run = self._client.create_run(
                self._experiment,
                start_time=int((time.time() if started is None else started) * 1000),
                run_name=cell.name(stage),
                tags=tags,
            )
            child = _Child(
                run_id=run.info.run_id,
                status=names.RUNNING,
                run_status=run.info.status,
                tags=tags,
                params=set(),
                keys=set(),
                logged=set(),
            )
            self._children[stage.key] = child
        untagged = {key: text for key, text in cell_tags(cell, stage, self._sweep).items() if key not in child.tags}
        self._set_tags(child.run_id, untagged)
        child.tags |= untagged
        wanted = cell_params(cell, stage, self._sweep.weights)
        missing = {key: text for key, text in wanted.items() if key not in child.params}
        if missing:
            params = [self._make.param(key, text) for key, text in missing.items()]
            self._client.log_batch(child.run_id, params=params)
            child.params |= set(missing)
        return child

    def _history(self, child: _Child) -> set[tuple[str, int]]:
        return {
            (key, metric.step) for key in child.keys for metric in self._client.get_metric_history(child.run_id, key)
        }

    def _tag_skipped(self, child: _Child) -> None:
        if not child.skipped:
            return
        text = json.dumps(sorted(child.skipped))
        if len(text) > _MAX_TAG:
            text = json.dumps([*sorted(child.skipped)[:50], f"and {len(child.skipped) - 50} more"])
        if child.tags.get(names.NONFINITE) != text:
            self._set_tags(child.run_id, {names.NONFINITE: text})
            child.tags[names.NONFINITE] = text

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        if tags:
            self._client.log_batch(run_id, tags=[self._make.tag(key, text) for key, text in tags.items()])

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
