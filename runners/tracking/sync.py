"""Keeps MLflow equal to the store: while a sweep trains, run by run; otherwise from its results table.

Only the driver writes, on a thread of its own, so a slow, locked or absent MLflow never delays training; changes are
tried again until the launch ends. The thread is a daemon: Python joins the threads of a pool when it exits, and then a
hanging call would keep a finished launch alive. Of what is to be written, only the trainings are remembered, and their
numbers are read from the store when their turn comes. So it does not matter what was lost: a relaunch and
`goal-sweep sync` compare every run.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.results import ResultsTable, training_row, update_results
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking.client import Experiment, is_temporary
from goal_sweep.runners.tracking.means import objective_means
from goal_sweep.runners.tracking.runs import RunWriter
from goal_sweep.runners.tracking.uri import OtherStoreError, TrackingError, resolve_uri
from goal_sweep.runners.tracking.views import views_of
from goal_sweep.sweeps import ResolvedSweep, Training

_log = logging.getLogger(__name__)
AFTER_ERROR_S = 5.0
"""Seconds that the end of the block may take if an error ends it."""
RETRY_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait before each retry of a change; the last one repeats."""
ANSWER_S = 5.0
"""Seconds after which a server that has not answered at all is not waited for, where nobody is patient."""
_REST = 4.0
"""Seconds of rest for each second of work while nobody waits, so that MLflow takes a fifth of a core at most."""
Status = Literal["FINISHED", "FAILED", "KILLED"]
_Task = Training | Literal["open", "table", "means", "views", "attach", "end"]


class SweepTracking:
    """Keeps the MLflow runs of a sweep equal to the store. A context manager.

    Args:
        sweep: the sweep.
        store: the store, which is only read.
        live: whether this process will train, so that the parent run shows as running until the end.
        mirror: write MLflow; else only the results table is kept up to date. MLflow has one writer, so that launches
            which share a sweep leave it to `goal-sweep sync` afterwards.
        thorough: also mend what somebody changed or deleted in MLflow.
        take_over: also replace runs that show another store's results.
        warn: receives one line when trouble begins and one when it ends, on another thread; `warnings` keeps them too.
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
        mirror: bool = True,
        thorough: bool = False,
        take_over: bool = False,
        warn: Callable[[str], None] = _log.warning,
        closing_s: float = 60.0,
    ) -> None:
        self._sweep, self._store, self._thorough, self._closing_s = sweep, store, thorough, closing_s
        self._mirror, self._max_attempts, self._warn = mirror, sweep.config.resources.max_attempts, warn
        self._deadline = math.inf
        self.warnings: list[str] = []
        uri, name = resolve_uri(sweep.config.tracking, store.root), sweep.config.name
        self._experiment = Experiment(uri, name, store, live=live, take_over=take_over, tell=self._tell)
        self._todo: dict[_Task, Callable[[RunWriter], None]] = {}
        """What is to be written, each once, in the order in which it changed last; with what is being written."""
        self._skipped: set[_Task] = set()
        self._changed = threading.Condition()
        self._hurried = 0
        """How many calls wait for the thread."""
        self._closing = threading.Event()
        self._stopped: TrackingError | None = None
        """The error after which nothing is written any more, if any."""
        self._trouble: Exception | None = None
        """Why the present change failed and is tried again; None while all goes well."""
        self._unwritten = ""
        self._status: Status = "KILLED"
        """Of the parent run, when this ends."""
        self._add("open", lambda runs: None)
        if mirror:
            threading.Thread(target=self._work, name="goal-sweep tracking", daemon=True).start()

    def sync(self, training: Training) -> None:
        """Bring a training's run up to date. Returns at once; repeated calls are cheap."""
        self._add(training, partial(self._agree, training))

    def sync_all(self, *, wait: float = 0.0, patient: bool = True) -> bool:
        """Bring the results table up to date, make every run agree with it, and attach it to the parent run.

        Args:
            wait: seconds to wait for MLflow; 0 returns at once.
            patient: wait also while MLflow is down, if it has ever answered.

        Returns:
            Whether everything is up to date now.
        """
        try:
            table, self._unwritten = update_results(self._store, self._sweep), ""
        except StorageError as error:
            self._unwritten = f"the results table is not up to date: {first_line(error)}"
            return False
        self._status = _outcome(table)
        self._add("table", partial(self._agree_all, table))
        if wait and self._mirror:
            self.flush(wait, patient=patient)
        return not self.trouble

    def limit(self, seconds: float) -> None:
        """Let all further waiting, including the end of the block, take this many seconds at most."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def flush(self, timeout: float, *, patient: bool = True) -> None:
        """Wait until everything is written, or MLflow turns out to be away."""
        ends = min(time.monotonic() + timeout, self._deadline)
        if self._experiment.file is None:
            # A host that swallows packets gives no error for a long time.
            first = min(ANSWER_S, timeout)
            if not self._wait_for(lambda: self._experiment.answered or (self._trouble and not patient), first):
                return
        self._wait_written(ends - time.monotonic(), patient=patient)

    def wait_open(self, timeout: float = 30.0) -> bool:
        """Wait until MLflow has answered.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Whether it has answered. If not, it is slow or down, and is tried again.

        Raises:
            TrackingError: MLflow can never work with these settings.
        """
        if not self._mirror:
            return False
        # A server that is silent can still be wrong only in ways that show at once.
        seconds = timeout if self._experiment.file is not None else min(timeout, ANSWER_S)
        self._wait_for(lambda: self._experiment.opened or self._stopped or self._trouble, seconds)
        if self._stopped is not None and not isinstance(self._stopped, OtherStoreError):
            raise self._stopped
        return self._experiment.opened

    def require_own(self) -> None:
        """Check that the runs have not turned out to be another store's.

        Raises:
            OtherStoreError: they have.
        """
        if isinstance(self._stopped, OtherStoreError):
            raise self._stopped

    @property
    def trouble(self) -> str:
        """What is not up to date, and why, in one line; empty if all is. Read it after `sync_all` has waited."""
        if self._unwritten:
            return self._unwritten
        with self._changed:
            behind = {*self._todo, *self._skipped}
        runs = sum(isinstance(task, Training) for task in behind)
        if behind & {"table", "means", "views", "attach"}:
            return f"MLflow is not up to date: {self._why_late()}"
        return f"{runs} of {len(self._sweep.trainings)} runs are not up to date: {self._why_late()}" if runs else ""

    def _why_late(self) -> str:
        if self._trouble is not None:
            return f"tracking does not answer: {_line(self._trouble)}"
        if not self._experiment.answered and self._stopped is None:
            return "tracking does not answer"
        return self.warnings[-1] if self.warnings else "MLflow is slow to answer"

    def close(self) -> None:
        """Write what is left, set the parent run's status, and stop."""
        self._add("end", lambda runs: runs.set_parent_status(self._status))
        self._wait_written(min(self._closing_s, self._deadline - time.monotonic()))
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> SweepTracking:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self.limit(AFTER_ERROR_S)
        self.close()

    def _add(self, task: _Task, change: Callable[[RunWriter], None]) -> None:
        if not self._mirror:
            return
        with self._changed:
            self._todo.pop(task, None)  # the others have waited longer
            self._todo[task] = change
            self._changed.notify_all()

    def _wait_written(self, timeout: float, *, patient: bool = True) -> None:
        self._wait_for(lambda: not self._todo or self._stopped or (self._trouble and not patient), timeout)

    def _wait_for(self, happened: Callable[[], object], timeout: float) -> bool:
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            try:
                return bool(self._changed.wait_for(happened, max(0.0, timeout)))
            finally:
                self._hurried -= 1

    def _tell(self, text: str) -> None:
        self.warnings.append(text)
        self._warn(text)

    # What follows runs on the thread that writes.

    def _work(self) -> None:
        while self._stopped is None:
            with self._changed:
                self._changed.wait_for(lambda: self._todo or self._closing.is_set())
                if self._closing.is_set():
                    return
                task, change = next(iter(self._todo.items()))
            began = time.thread_time()
            is_done = self._write(change)
            with self._changed:
                if self._stopped is None and self._todo[task] is change:
                    del self._todo[task]
                (self._skipped.discard if is_done else self._skipped.add)(task)
                self._trouble = None
                self._changed.notify_all()
                # The driver needs the processor too. What changes meanwhile is written at once.
                rest = _REST * (time.thread_time() - began)
                self._changed.wait_for(lambda: self._hurried or self._closing.is_set(), rest)

    def _write(self, change: Callable[[RunWriter], None]) -> bool:
        """Make a change, again and again while MLflow is down. Returns whether it was made."""
        for tried in itertools.count():
            try:
                self._experiment.change(change)
            except TrackingError as error:
                self._stopped = error
                self._tell(f"tracking is off for this launch: {_line(error)}")
                return False
            except Exception as error:
                _log.debug("tracking call failed", exc_info=error)
                if not is_temporary(error):
                    self._tell(f"a tracking update failed and is skipped: {_line(error)}")
                    return False
                if not tried:
                    self._note(error)
                if self._closing.wait(RETRY_WAITS_S[min(tried, len(RETRY_WAITS_S) - 1)]):
                    return False
            else:
                if tried:
                    self._tell(f"tracking works again; {len(self._todo) - 1} updates are still to be written")
                return True
        raise AssertionError

    def _note(self, error: Exception) -> None:
        """Let those who wait know that MLflow does not answer."""
        with self._changed:
            self._trouble = error
            self._changed.notify_all()
        self._tell(f"tracking does not answer; training continues and tracking will catch up: {_line(error)}")

    def _agree(self, training: Training, runs: RunWriter) -> None:
        runs.agree(training_row(self._store, training, self._max_attempts), thorough=self._thorough)

    def _agree_all(self, table: ResultsTable, runs: RunWriter) -> None:
        asked = {training.key: training for training in self._sweep.trainings}
        for key in runs.behind(table, thorough=self._thorough):
            self.sync(asked[key])
        self._add("means", lambda runs: runs.show_means(objective_means(table)))
        self._add("views", lambda runs: runs.show_views(views_of(table)))
        self._add("attach", partial(self._attach, table))

    def _attach(self, table: ResultsTable, runs: RunWriter) -> None:
        try:
            runs.attach_table(table.content, thorough=self._thorough)
        except Exception as error:  # each artifact store has errors of its own, which must not keep numbers out
            self._tell(f"the results table is not attached to the sweep's run: {first_line(error)}")


def _outcome(table: ResultsTable) -> Status:
    """The status of the parent run of a launch that ends with this table."""
    states = set(table.table["status"].unique().to_pylist())
    if states <= {"done"}:
        return "FINISHED"
    return "KILLED" if states & {"waiting", "running"} else "FAILED"


def _line(error: Exception) -> str:
    return first_line(error)[:300]
