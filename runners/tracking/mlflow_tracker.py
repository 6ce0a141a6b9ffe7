"""Writes a sweep's runs to MLflow, one way: from what the driver read in the store.

Nothing is read back but what is there already, so that a run is continued and no value is written twice.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlflow.entities import Metric, Param, RunTag

from goal_sweep.goal_core.basics.atomic import scratch_folder
from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.tracking import experiment
from goal_sweep.runners.tracking.experiment import LoggedStep, Row
from goal_sweep.sweeps.results import RESULTS_FILE

_RUN_STATUS: Mapping[str, str] = {"waiting": "KILLED", "running": "RUNNING", "done": "FINISHED", "failed": "FAILED"}
_MAX_BATCH = 700
"""Metrics in one call. MLflow accepts 1,000 values, with parameters and tags."""
_PAGE = 1000
_TABLE = "goal.results"
"""Tag of the parent run: SHA-256 of the results table among its artifacts."""


@dataclass(slots=True)
class _Run:
    """What is remembered of a run in MLflow: little, because a sweep may have ten thousand."""

    id: str
    status: str
    """As the store's: the tag `goal.status`."""
    is_former: bool = False
    epochs: set[int] | None = None
    """The epochs that it has; None until it is asked for."""


class MlflowTracker:
    """A tracker (`sweeps.trackers.Tracker`) that is MLflow. Every call may be repeated after it has failed.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.
        name: of the sweep, its experiment and its parent run.
        live: whether this process trains, so that the parent run is shown as running.
    """

    def __init__(self, uri: str, name: str, *, live: bool = True) -> None:
        self._name = name
        self._client = experiment.connect(uri)
        self._experiment = experiment.ensure_experiment(self._client, uri, name)
        self._parent = self._ensure_parent()
        self._runs: dict[str, _Run] = {}
        """By stage key, also those of trainings that are no longer in the sweep."""
        for run in self._pages():
            tags = run.data.tags
            if (key := tags.get(experiment.STAGE_KEY)) in self._runs:  # an older one, which somebody has restored
                self._client.delete_run(run.info.run_id)
            elif key:
                status, former = tags.get(experiment.STATUS, ""), tags.get(experiment.ROLE) == experiment.FORMER
                is_whole = run.info.status == _RUN_STATUS.get(status)  # or else its writer died
                self._runs[key] = _Run(run.info.run_id, status if is_whole else "", former)
        if live:
            self._client.update_run(self._parent, status="RUNNING")

    def begin(self, training: str, row: Row) -> None:
        """Let a training's run be shown as running; a finished run, whose training begins anew, is replaced."""
        run = self._runs.get(training)
        if run is not None and run.status == "done":
            self._client.delete_run(run.id)
            run = None
        if run is None:
            self._create(row)
        else:
            self._client.set_tag(run.id, experiment.STATUS, "running")
            self._client.update_run(run.id, status="RUNNING")
            run.status = "running"

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        """Write an epoch's metrics, unless the run has them."""
        if (run := self._runs.get(training)) is not None:
            self._log(run, [experiment.logged(record["epoch"], record["metrics"], record["time"])])

    def end(self, training: str, row: Row) -> None:
        """Write all that a training's run lacks, and end it."""
        if (run := self._runs.get(training)) is None:
            run = self._create(row)
        else:  # what no longer holds goes, such as the reason of a failure that is mended
            known = self._client.get_run(run.id).data.tags.keys() & experiment.COLUMNS_OF_TAGS.keys()
            for tag in known - experiment.tags_of(row).keys():
                self._client.delete_tag(run.id, tag)
        steps = [*experiment.epochs_of(row)]
        final = [experiment.final_of(row)] if row["status"] == "done" and run.status != "done" else []
        # Whoever made the run may have died before it had its parameters. What is there already may be written again.
        self._log(run, steps, final, params=experiment.params_of(row), tags=experiment.tags_of(row))
        self._client.set_terminated(run.id, _RUN_STATUS[row["status"]], int(1000 * (row["ended"] or time.time())))
        run.status, run.is_former = row["status"], False

    def catch_up(self, table: ResultsTable) -> None:
        """Write the runs that are missing or behind, of trainings that nobody trains now."""
        behind = {row["training"] for row in table.rows(("training", "status", "attempts")) if self._is_behind(row)}
        for row in table.rows() if behind else ():
            if row["training"] in behind:
                self.end(row["training"], row)

    def _is_behind(self, row: Row) -> bool:
        if row["status"] == "running" or not (row["attempts"] or row["status"] == "done"):
            return False
        run = self._runs.get(row["training"])
        return run is None or run.status != row["status"] or run.is_former

    def remove_all(self) -> None:
        """Delete the runs of all trainings, so that `catch_up` writes everything again."""
        for run in self._runs.values():
            self._client.delete_run(run.id)
        self._runs.clear()

    def finish(self, table: ResultsTable) -> None:
        """Attach the results table, mark the runs of trainings that are not in it, and end the parent run."""
        asked = {row["training"] for row in table.rows(["training"])}
        for key, run in self._runs.items():
            if key not in asked and not run.is_former:
                self._client.set_tag(run.id, experiment.ROLE, experiment.FORMER)
                run.is_former = True
        sha256 = hashlib.sha256(table.content).hexdigest()
        if self._client.get_run(self._parent).data.tags.get(_TABLE) != sha256:
            with scratch_folder() as folder:
                (folder / RESULTS_FILE).write_bytes(table.content)
                self._client.log_artifact(self._parent, str(folder / RESULTS_FILE))
            self._client.set_tag(self._parent, _TABLE, sha256)
        self._client.set_terminated(self._parent, _outcome(table))

    def _ensure_parent(self) -> str:
        """The id of the sweep's run. Of two launches that make one at the same moment, the older one stays."""
        query, order = f"tags.`{experiment.ROLE}` = '{experiment.ROLE_SWEEP}'", ["attributes.start_time ASC"]
        for _ in range(2):
            found = self._client.search_runs([self._experiment], query, order_by=order)
            if found:
                for other in found[1:]:
                    self._client.delete_run(other.info.run_id)
                break
            tags = {experiment.ROLE: experiment.ROLE_SWEEP, experiment.SWEEP: self._name, **experiment.SOURCE}
            found = [self._client.create_run(self._experiment, run_name=self._name, tags=tags)]
        return str(found[0].info.run_id)

    def _pages(self) -> Iterator[Any]:
        token = None
        while token != "":
            page = self._client.search_runs([self._experiment], max_results=_PAGE, page_token=token)
            yield from page
            token = page.token or ""

    def _create(self, row: Row) -> _Run:
        """A run for a training; that of another launch, if it has made one since this tracker looked."""
        key, began = row["training"], int(1000 * (row.get("started") or time.time()))
        found = self._client.search_runs([self._experiment], f"tags.`{experiment.STAGE_KEY}` = '{key}'", max_results=1)
        if found:
            run = self._runs[key] = _Run(found[0].info.run_id, found[0].data.tags.get(experiment.STATUS, ""))
            return run
        tags = experiment.tags_of({**row, "status": "running"}) | {experiment.PARENT_RUN: self._parent}
        made = self._client.create_run(self._experiment, start_time=began, run_name=experiment.name_of(row), tags=tags)
        run = self._runs[key] = _Run(made.info.run_id, "running", epochs=set())
        self._log(run, [], params=experiment.params_of(row))
        return run

    def _log(
        self,
        run: _Run,
        epochs: Iterable[LoggedStep],
        final: Iterable[LoggedStep] = (),
        *,
        params: Mapping[str, str] = {},
        tags: Mapping[str, str] = {},
    ) -> None:
        """Add the epochs that a run lacks and further metrics, and with the last of them parameters and tags."""
        if run.epochs is None:
            run.epochs = {point.step for point in self._client.get_metric_history(run.id, "val/rsum")}
        new = [epoch for epoch in epochs if epoch.step not in run.epochs]
        batch: list[Metric] = []
        for step in (*new, *final):
            points = [Metric(name, value, step.time_ms, step.step) for name, value in step.metrics.items()]
            if len(batch) + len(points) > _MAX_BATCH:
                self._client.log_batch(run.id, metrics=batch)
                batch = []
            batch += points
        if batch or params or tags:
            said = [Param(*each) for each in params.items()], [RunTag(*each) for each in tags.items()]
            self._client.log_batch(run.id, batch, *said)
        run.epochs.update(epoch.step for epoch in new)


def _outcome(table: ResultsTable) -> Literal["FINISHED", "FAILED", "KILLED"]:
    states = set(table.table["status"].unique().to_pylist())
    if states <= {"done"}:
        return "FINISHED"
    return "KILLED" if states & {"waiting", "running"} else "FAILED"
