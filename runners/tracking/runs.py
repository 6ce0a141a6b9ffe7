"""The runs of one sweep in an MLflow experiment. Every operation is safe to repeat: the second time changes nothing.

A call that fails may have arrived in part. Only the run that it was about is then read again: reading ten thousand
takes a core half a minute.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlflow.entities import Metric, Param, RunTag

from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.means import ObjectiveMean
from goal_sweep.runners.tracking.uri import OtherStoreError
from goal_sweep.runners.tracking.values import (
    LoggedStep,
    Row,
    digest_of,
    epochs_of,
    final_of,
    name_of,
    params_of,
    tags_of,
)
from goal_sweep.sweeps.results import EPOCHS, RESULTS_FILE, TEST

_RUN_STATUS: Mapping[str, str] = {"waiting": "KILLED", "running": "RUNNING", "done": "FINISHED", "failed": "FAILED"}
MAX_BATCH = 700
"""Number of metrics in one call. MLflow accepts 1,000 values, with parameters and tags."""
_PAGE = 500


@dataclass(slots=True, kw_only=True)
class TrackedRun:
    """What is remembered of a run in MLflow: little, because a sweep may have ten thousand."""

    id: str
    status: str
    """MLflow's own status of the run."""
    shown: str = ""
    """Digest of what it shows."""
    epochs: int | None = None
    """The last epoch that it has; None until its history is read."""
    is_former: bool = False
    """Whether it is marked as no longer of the sweep."""


class RunWriter:
    """Writes the parent run of a sweep and a run for each of its trainings.

    Args:
        client: an ``MlflowClient``, or a substitute in tests.
        experiment_id: the sweep's experiment.
        name: the sweep's name.
        store: the store whose results the runs show.
        take_over: whether runs of another store become this one's.

    Raises:
        OtherStoreError: the runs are another store's.
    """

    def __init__(self, client: Any, experiment_id: str, name: str, store: Store, *, take_over: bool = False) -> None:
        self._client, self.experiment_id, self._name = client, experiment_id, name
        self._runs: dict[str, TrackedRun] = {}
        self._means: dict[str, str] = {}
        """By the digest of what it shows, the run of each objective's mean."""
        self._doubted: set[str] = set()
        """Keys of trainings whose runs must be read again, because a call about them failed."""
        self.parent_id, self._parent_status, self._table = "", "", ""
        self._read(store, take_over=take_over)

    @property
    def runs(self) -> Mapping[str, TrackedRun]:
        """Every training's run in the experiment, by stage key, including trainings that are no longer in the sweep."""
        return self._runs

    def _read(self, store: Store, *, take_over: bool) -> None:
        """Read every run of the experiment, create the parent run if there is none, and delete duplicates."""
        parents: list[Any] = []
        duplicates: list[str] = []
        for run in self._pages():
            tags = run.data.tags
            key, role = tags.get(names.STAGE_KEY), tags.get(names.ROLE)
            if role == names.ROLE_SWEEP:
                parents.append(run)
            elif role == names.ROLE_MEAN:
                self._means[tags.get(names.SHOWN, run.info.run_id)] = run.info.run_id  # or it is not whole
            elif key in self._runs:  # only from restoring a deleted experiment
                duplicates.append(run.info.run_id)
            elif key:
                self._runs[key] = _tracked(run)
        if not parents:
            tags = {names.ROLE: names.ROLE_SWEEP, names.SWEEP: self._name, **names.SOURCE}
            parents = [self._client.create_run(self.experiment_id, run_name=self._name, tags=tags)]
        first, *others = sorted(parents, key=lambda parent: parent.info.start_time)
        self.parent_id, self._parent_status, tags = first.info.run_id, first.info.status, first.data.tags
        self._table = tags.get(names.TABLE, "")
        if not take_over:
            require_own(self._name, tags, store)
        if store.id and store.id != tags.get(names.STORE_ID):
            self._client.set_tag(self.parent_id, names.STORE, store.location)
            self._client.set_tag(self.parent_id, names.STORE_ID, store.id)
        for run_id in (*duplicates, *(other.info.run_id for other in others)):
            self._client.delete_run(run_id)

    def _pages(self) -> Iterator[Any]:
        """All runs, the finished ones before others of the same training, the older ones first."""
        token, order = None, ["attributes.end_time DESC", "attributes.start_time ASC"]
        while True:
            page = self._client.search_runs([self.experiment_id], max_results=_PAGE, page_token=token, order_by=order)
            yield from page
            token = page.token
            if not token:
                return

    def set_parent_status(self, status: Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]) -> None:
        """Set the status of the parent run, unless it has this status already."""
        if status != self._parent_status:
            self._set_status(self.parent_id, status, None)
            self._parent_status = status

    def agree(self, row: Row, *, thorough: bool = False) -> None:
        """Make a training's run agree with its row in the results table.

        Args:
            row: with the columns by epoch.
            thorough: also mend what somebody changed in MLflow.
        """
        key = row["training"]
        if key in self._doubted:
            self._runs.pop(key, None)
            query = f"tags.`{names.STAGE_KEY}` = '{key}'"
            for run in self._client.search_runs([self.experiment_id], query, max_results=1):
                self._runs[key] = _tracked(run)
        self._doubted.add(key)
        self._agree(row, thorough=thorough)
        self._doubted.remove(key)

    def _agree(self, row: Row, *, thorough: bool) -> None:
        key, state, run = row["training"], row["status"], self._runs.get(row["training"])
        has_begun = bool(row["attempts"]) or state == "done"
        final = final_of(row) if state == "done" else None
        digest, there = digest_of(row), None
        if run is not None and (run.shown != digest or thorough or run.is_former):
            there = self._client.get_run(run.id).data
        if run is not None and (not has_begun or (there is not None and _contradicts(there.metrics, final))):
            self._client.delete_run(run.id)  # the store no longer has these numbers; MLflow can restore the run
            del self._runs[key]
            run = there = None
        if not has_begun:
            return  # the results table lists what the sweep asks for
        tags = tags_of(row) | {names.SHOWN: digest}
        has: Mapping[str, str] = tags if there is None else there.tags
        if run is None:
            began = int(1000 * (row["started"] or time.time()))
            has = tags | {names.PARENT_RUN: self.parent_id, names.STATUS: "running", names.SHOWN: ""}
            made = self._client.create_run(self.experiment_id, start_time=began, run_name=name_of(row), tags=has)
            run = self._runs[key] = TrackedRun(id=made.info.run_id, status=made.info.status, epochs=0)
        for tag in has.keys() & names.COLUMNS_OF_TAGS.keys() - tags.keys():
            self._client.delete_tag(run.id, tag)
        has_final = run.shown == digest or (there is not None and _finals(there.metrics))
        params = {} if run.shown else params_of(row)
        changed = {tag: text for tag, text in tags.items() if has.get(tag) != text}
        self._log(run, [*epochs_of(row)], None if has_final else final, params, changed)
        run.shown, run.is_former = digest, False
        if run.status != _RUN_STATUS[state]:
            self._set_status(run.id, _RUN_STATUS[state], row["ended"])
            run.status = _RUN_STATUS[state]

    def behind(self, table: ResultsTable, *, thorough: bool = False) -> list[str]:
        """Mark and end the runs of trainings that a results table does not have, and find those that differ from it.

        Args:
            table: the sweep's table.
            thorough: take all runs for different, because somebody may have changed them in MLflow.

        Returns:
            The keys of the trainings whose runs must be made to agree.
        """
        found = []
        fixed = [name for name in table.table.column_names if not name.startswith(EPOCHS)]
        keys = set()
        for row in table.rows(fixed):
            keys.add(row["training"])
            run = self._runs.get(row["training"])
            # The digest does not have the epochs; a finished run has all.
            is_whole = row["status"] == "done" and run is not None and run.status == _RUN_STATUS["done"]
            if thorough or run is None or run.is_former or not is_whole or run.shown != digest_of(row):
                found.append(row["training"])
        for key, run in self._runs.items():  # those of trainings that the sweep no longer asks for
            if key not in keys and not run.is_former:
                self._client.set_tag(run.id, names.ROLE, names.FORMER)
                if run.status == _RUN_STATUS["running"]:
                    self._set_status(run.id, _RUN_STATUS["waiting"], None)
                    run.status = _RUN_STATUS["waiting"]
                run.is_former = True
        return found

    def show_means(self, means: Iterable[ObjectiveMean]) -> None:
        """Let exactly these objectives have a run; one whose seeds have changed gets a new one."""
        wanted = {mean.digest: mean for mean in means}
        for digest in self._means.keys() - wanted.keys():
            self._client.delete_run(self._means[digest])
            del self._means[digest]
        for digest in wanted.keys() - self._means.keys():
            mean = wanted[digest]
            tags, params = {**mean.tags, names.PARENT_RUN: self.parent_id}, {names.OBJECTIVE: mean.objective}
            run = self._client.create_run(self.experiment_id, run_name=mean.name, tags=tags).info
            self._means[run.run_id] = run.run_id  # until it is whole, another one replaces it
            self._client.set_terminated(run.run_id, "FINISHED")
            self._log(TrackedRun(id=run.run_id, status=run.status), [], mean.final, params, {names.SHOWN: digest})
            self._means[digest] = self._means.pop(run.run_id)

    def show_views(self, views: Mapping[str, str]) -> None:
        """Let the experiment have exactly these of the saved views that goal-sweep writes."""
        tags = self._client.get_experiment(self.experiment_id).tags
        for key, view in views.items():
            if tags.get(key) != view:
                self._client.set_experiment_tag(self.experiment_id, key, view)
        for key in tags.keys() - views.keys():
            if key.startswith(names.VIEW):
                self._client.delete_experiment_tag(self.experiment_id, key)

    def attach_table(self, content: bytes, *, thorough: bool = False) -> None:
        """Attach the results table to the parent run, unless it is there.

        Args:
            content: of the file.
            thorough: also check that the artifact itself exists.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        files = [file.path for file in self._client.list_artifacts(self.parent_id)] if thorough else [RESULTS_FILE]
        if self._table == sha256 and RESULTS_FILE in files:
            return
        with tempfile.TemporaryDirectory(prefix="goal-sweep-") as folder:
            named = Path(folder) / RESULTS_FILE
            named.write_bytes(content)
            self._client.log_artifact(self.parent_id, str(named))
        self._client.set_tag(self.parent_id, names.TABLE, sha256)
        self._table = sha256

    def _log(
        self,
        run: TrackedRun,
        epochs: list[LoggedStep],
        final: LoggedStep | None,
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Add the epochs that a run lacks and the final metrics, and with the last of them parameters and tags.

        Of what one call has, MLflow writes the tags last, so they may say that the rest is there.
        """
        if epochs and run.epochs is None:
            history = self._client.get_metric_history(run.id, next(iter(epochs[0].metrics)))
            run.epochs = max((point.step for point in history), default=0)
        batch: list[Metric] = []
        for step in [*(epoch for epoch in epochs if epoch.step > (run.epochs or 0)), *([final] if final else [])]:
            points = [Metric(name, value, step.time_ms, step.step) for name, value in step.metrics.items()]
            if len(batch) + len(points) > MAX_BATCH:
                self._client.log_batch(run.id, metrics=batch)
                batch = []
            batch += points
        if batch or params or tags:
            said = {
                "params": [Param(*each) for each in params.items()],
                "tags": [RunTag(*each) for each in tags.items()],
            }
            self._client.log_batch(run.id, metrics=batch, **said)
        run.epochs = max(run.epochs or 0, *(epoch.step for epoch in epochs), 0)

    def _set_status(self, run_id: str, status: str, ended: float | None) -> None:
        if status == "RUNNING":
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, int((time.time() if ended is None else ended) * 1000))


def _tracked(run: Any) -> TrackedRun:
    tags, info = run.data.tags, run.info
    is_former = tags.get(names.ROLE) == names.FORMER
    return TrackedRun(id=info.run_id, status=info.status, shown=tags.get(names.SHOWN, ""), is_former=is_former)


def _finals(metrics: Mapping[str, float]) -> dict[str, float]:
    """Those of a run's metrics that a finished training has."""
    return {name: value for name, value in metrics.items() if name.startswith((TEST, names.SELECTED))}


def _contradicts(shown: Mapping[str, float], final: LoggedStep | None) -> bool:
    """Whether a run shows other final metrics than the store has, as after a repeated training."""
    finals, stated = _finals(shown), {} if final is None else final.metrics
    return bool(finals) and not (
        finals.keys() == stated.keys() and all(math.isclose(finals[name], stated[name]) for name in finals)
    )


def require_own(name: str, tags: Mapping[str, str], store: Store) -> None:
    """Check that the runs of a sweep do not show another store's results.

    Args:
        name: the sweep's name.
        tags: of its parent run.
        store: the store whose results they are to show.

    Raises:
        OtherStoreError: they do.
    """
    owner = tags.get(names.STORE_ID)
    if owner is not None and owner != store.id:
        raise OtherStoreError(
            f"the MLflow runs of {name!r} show the results of another store ({tags.get(names.STORE, owner)}) and are "
            "left as they are; give another --tracking-uri, or let goal-sweep sync --take-over replace them"
        )
