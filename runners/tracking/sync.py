"""Keeps MLflow equal to the store: while a sweep trains, run by run; otherwise from its results table.

Every number enters MLflow through this module, and it does not matter what was lost: a relaunch and `goal-sweep sync`
compare every run.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

from goal_core.basics.atomic import StorageError
from goal_core.basics.errors import GoalError, first_line
from runners.results import ResultsTable, training_row, update_results
from runners.store import Store
from runners.tracking.client import Outcome, Tracking
from runners.tracking.runs import RunWriter
from runners.tracking.uri import resolve_uri
from sweeps import ResolvedSweep, Training

_log = logging.getLogger(__name__)
AFTER_ERROR_S = 5.0
"""Seconds that the end of the block may take if an error ends it."""


class SweepTracking:
    """Keeps the MLflow runs of a sweep equal to the store. A context manager.

    Args:
        sweep: the sweep.
        store: the store, which is only read.
        live: whether this process will train, so that the parent run shows as running until the end.
        thorough: also mend what somebody changed or deleted in MLflow.
        take_over: also replace runs that show another store's results.
        warn: receives one line when trouble begins and one when it ends, on another thread.
        closing_s: seconds that the end of the block may take to write what is left.

    Raises:
        TrackingError: the sweep's tracking URI is not supported.
    """

    def __init__(
        self,
        sweep: ResolvedSweep,
        store: Store,
        *,
        live: bool = True,
        thorough: bool = False,
        take_over: bool = False,
        warn: Callable[[str], None] = _log.warning,
        closing_s: float = 60.0,
    ) -> None:
        self._sweep, self._store, self._thorough, self._closing_s = sweep, store, thorough, closing_s
        self._deadline = math.inf
        self._max_attempts = sweep.config.resources.max_attempts
        self._queued: set[Training] = set()
        self._behind: set[Training] = set()
        self._tables_behind, self._unwritten = 0, ""
        self.tracking = Tracking(
            resolve_uri(sweep.config.tracking, store.root),
            sweep.config.name,
            store,
            live=live,
            take_over=take_over,
            warn=warn,
        )

    def sync(self, training: Training) -> None:
        """Bring a training's run up to date. Returns at once; repeated calls are cheap."""
        self._behind.add(training)
        if training not in self._queued:
            self._queued.add(training)
            self.tracking.update(partial(self._agree, training))

    def sync_all(self, *, wait: float = 0.0, patient: bool = True) -> bool:
        """Bring the results table up to date, make every run agree with it, and attach it to the parent run.

        Args:
            wait: seconds to wait for MLflow; 0 returns at once.
            patient: wait also while MLflow is down.

        Returns:
            Whether everything is up to date now.
        """
        try:
            table, self._unwritten = update_results(self._store, self._sweep), ""
        except StorageError as error:
            self._unwritten = f"the results table is not up to date: {first_line(error)}"
            return False
        self._tables_behind += 1
        self.tracking.update(partial(self._agree_all, table))
        if wait:
            self.tracking.flush(min(wait, self._left()), patient=patient)
        return not self.trouble

    def limit(self, seconds: float) -> None:
        """Let all further waiting, including the end of the block, take this many seconds at most."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def trouble(self) -> str:
        """What is not up to date, and why, in one line; empty if all is. Read it after `sync_all` has waited."""
        if self._unwritten:
            return self._unwritten
        if self._tables_behind:
            return f"MLflow is not up to date: {self.tracking.why_late}"
        if self._behind:
            behind = f"{len(self._behind)} of {len(self._sweep.trainings)} runs are not up to date"
            return f"{behind}: {self.tracking.why_late}"
        return ""

    def close(self) -> None:
        """Write what is left, set the parent run's status, and stop."""
        try:
            outcome = self._outcome()
        except GoalError:
            outcome = "interrupted"
        self.tracking.close(outcome, min(self._closing_s, self._left()))

    def __enter__(self) -> SweepTracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.limit(AFTER_ERROR_S)
        self.close()

    def _outcome(self) -> Outcome:
        statuses = self._store.status(self._sweep.trainings, max_attempts=self._max_attempts)
        states = {status.state for status in statuses.values()}
        if states <= {"done"}:
            return "done"
        return "interrupted" if states & {"waiting", "running"} else "failed"

    def _agree(self, training: Training, runs: RunWriter) -> None:
        self._queued.discard(training)
        runs.agree(training_row(self._store, training, self._max_attempts), thorough=self._thorough)
        if training not in self._queued:
            self._behind.discard(training)

    def _agree_all(self, table: ResultsTable, runs: RunWriter) -> None:
        runs.agree_all(table, thorough=self._thorough)
        try:
            runs.attach_table(table.as_bytes(), thorough=self._thorough)
        except Exception as error:  # each artifact store has errors of its own, which must not keep numbers out
            self.tracking.tell(f"the results table is not attached to the sweep's run: {first_line(error)}")
        self._tables_behind -= 1
