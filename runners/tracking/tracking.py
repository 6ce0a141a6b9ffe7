"""Tells trackers what becomes of a sweep's trainings, each on a thread of its own that training never waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from operator import methodcaller
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from goal_sweep.goal_core.basics.errors import GoalError, first_line
from goal_sweep.runners.results import ResultsTable, asked_row
from goal_sweep.runners.tracking.uri import TrackingError, resolve_uri, sqlite_file
from goal_sweep.sweeps.cells import ResolvedSweep, Training
from goal_sweep.sweeps.trackers import BuiltIn, Tracker, trackers

if TYPE_CHECKING:
    from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker

T = TypeVar("T", bound=Tracker)
_RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each retry of a call; the last one repeats."""
_REFUSALS = frozenset(
    {"RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST"}
)
_AWAY_S = 10.0
"""Seconds that the end of a launch waits for a tracker that did not answer."""
_LAST_S = 1.0
"""Seconds that it waits at least for each, as one with nothing left to tell must not be blamed for another."""
_SETTLE_S = 4.0
"""Seconds that a worker which has claimed its trainings needs until their first step; MLflow is imported after them."""
_IMPORTING = threading.Lock()
"""Held while a thread imports libraries that import each other in rounds, of which another would see a half."""
_TRIES = 3
"""Tries after which a call that MLflow refuses is given up; before, somebody may have deleted a run or the database."""


class Tracking:
    """Tells MLflow, the trackers of `tracking.also` and those of a sweep's plugins. A context manager.

    Args:
        warn: receives a line, on another thread.
    """

    def __init__(self, sweep: ResolvedSweep, store: Path, *, live: bool, warn: Callable[[str], None]) -> None:
        uri, name = resolve_uri(sweep.config.tracking.uri, store), sweep.config.name
        self.mlflow = TrackerThread("MLflow", partial(_mlflow, uri, name, live=live), warn, tries=_TRIES)
        file = sqlite_file(uri)
        # What is there, or lies elsewhere, may be wrong. A database that is yet to be made in the store can wait.
        self.mlflow.settle_s = _SETTLE_S if file is not None and file.parent == store and not file.exists() else 0.0
        plugins = {plugin.name for plugin in sweep.config.plugins}
        own = {entry.name: entry.function for entry in trackers.values() if entry.plugin in plugins}
        self.threads: list[TrackerThread[Any]] = [self.mlflow]
        for one in sweep.config.tracking.also if live else ():
            self.threads.append(TrackerThread(one, partial(_built_in, one, name, store), warn))
            self.threads[-1].settle_s = _SETTLE_S
        self.threads += [TrackerThread(one, partial(make, name), warn) for one, make in own.items()]

    def __enter__(self) -> Tracking:
        for thread in self.threads:
            if not thread.settle_s:
                thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close(0.0)

    def begin(self, training: Training) -> None:
        """Tell that a training begins, or goes on."""
        self._tell("begin", training.key, asked_row(training))

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        """Tell of an epoch's record."""
        self._tell("epoch", training, record)

    def end(self, row: Mapping[str, Any]) -> None:
        """Tell how a training ended, by its row in the results table."""
        self._tell("end", row["training"], row)

    def catch_up(self, table: ResultsTable) -> None:
        """Have MLflow's runs of trainings that ended earlier written, where they are missing."""
        self.mlflow.tell(lambda tracker: tracker.catch_up(table), starts=False)

    def finish(self, table: ResultsTable) -> None:
        """Have the results table attached in MLflow, and the sweep's run ended."""
        self.mlflow.tell(lambda tracker: tracker.finish(table))

    def close(self, seconds: float) -> None:
        """Wait until everything is told, so many seconds at most, or one for each tracker, and stop."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.close(max(_LAST_S, deadline - time.monotonic()))

    def _tell(self, what: str, training: str, told: Mapping[str, Any]) -> None:
        for thread in self.threads:  # each gets its own copy, as one may change it
            thread.tell(methodcaller(what, training, deepcopy(dict(told))))


class TrackerThread(Generic[T]):
    """Calls a tracker in order, and tries again while MLflow does not answer.

    The thread is a daemon: Python joins the threads of a pool when it exits, and then a hanging call would keep a
    finished launch alive.

    Args:
        name: of the tracker, in messages.
        make: makes it; called again after a call has failed.
        warn: receives a line when trouble begins and when it ends.
        tries: after which an error is given up that waiting does not mend; 1: every error, and the tracker stays.
    """

    def __init__(self, name: str, make: Callable[[], T], warn: Callable[[str], None], *, tries: int = 1) -> None:
        self._name, self._make, self._warn, self._tries = name, make, warn, tries
        self._calls: SimpleQueue[Callable[[T], None] | None] = SimpleQueue()
        self._tracker: T | None = None
        self._stopping, self._closing, self._opened = threading.Event(), threading.Event(), threading.Event()
        self.settle_s = 0.0
        """Seconds after its start in which nothing is called yet, unless it is closed."""
        self._thread = threading.Thread(target=self._work, name=f"goal-sweep {name}", daemon=True)
        self.refused: TrackingError | None = None
        """Why it can never work, once that has shown."""
        self.trouble = ""
        """Why something is not written; empty if all is."""

    def start(self) -> None:
        """Begin to call, if it has not yet."""
        if self._thread.ident is None:
            self._thread.start()

    def tell(self, call: Callable[[T], None], *, starts: bool = True) -> None:
        """Have a call made, or kept for when another one starts the thread."""
        self._calls.put(call)
        if starts:
            self.start()

    def check(self, seconds: float) -> None:
        """Wait so many seconds at most until the tracker is made, if it has begun.

        Raises `TrackingError` where it can never work.
        """
        if self._thread.ident is not None:
            self._opened.wait(seconds)
        if self.refused is not None:
            raise self.refused

    def close(self, seconds: float) -> None:
        """Wait until all calls are made, no longer than so many seconds, and stop."""
        if not self._stopping.is_set():
            self._calls.put(None)
            self._closing.set()
            self.start()
            self._thread.join(max(0.0, min(seconds, _AWAY_S) if self.trouble else seconds))
            self._stopping.set()
            if self._thread.is_alive() and not self.trouble:
                self.trouble = f"{self._name} does not answer in time"

    # On the thread.

    def _work(self) -> None:
        self._closing.wait(self.settle_s)
        self._call(lambda tracker: None)
        self._opened.set()
        while not self._stopping.is_set() and self.refused is None:
            if (call := self._calls.get()) is None:
                return
            self._call(call)

    def _call(self, call: Callable[[T], None]) -> None:
        tries = 0
        while not self._stopping.is_set():
            try:
                if self._tracker is None:
                    self._tracker = self._make()
                call(self._tracker)
            except TrackingError as error:
                self.refused, self.trouble = error, f"{self._name}: {_line(error)}"
                self._warn(f"tracking is off for this launch: {_line(error)}")
                return
            except (Exception, SystemExit) as error:
                tries += 1
                if self._tries == 1 or (tries >= self._tries and not _is_temporary(error)):
                    kind = "" if isinstance(error, GoalError) else f"{type(error).__name__}: "
                    line = f"{self._name}: {kind}{_line(error)}"
                    if not self.trouble:
                        self._warn(f"an update is skipped: {line}")
                    if self._tries > 1 or not self.trouble:  # of a tracker that stays, the first says most
                        self.trouble = line
                    self._opened.set()
                    return
                self._tracker = None
                self._opened.set()  # it is slow or away, and is caught up with later
                if tries == 1:
                    self.trouble = f"{self._name} does not answer: {_line(error)}"
                    self._warn(f"{self.trouble}; training goes on, and it is tried again")
                self._stopping.wait(_RETRY_S[min(tries, len(_RETRY_S)) - 1])
            else:
                self._opened.set()
                if tries:
                    self.trouble = ""
                    self._warn(f"{self._name} answers again")
                return


def _mlflow(uri: str, name: str, *, live: bool) -> MlflowTracker:
    with _IMPORTING:
        from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker  # with MLflow, which takes seconds

    return MlflowTracker(uri, name, live=live)


def _built_in(one: BuiltIn, sweep: str, store: Path) -> Tracker:
    with _IMPORTING:
        from goal_sweep.runners.tracking.built_in import BUILT_IN

        return BUILT_IN[one](sweep, store)


def _is_temporary(error: BaseException) -> bool:
    if (code := getattr(error, "error_code", None)) is not None:  # of MLflow
        return code not in _REFUSALS
    # Connections and databases raise errors of many libraries, which are worth a retry; a bug is not.
    bugs = (GoalError, TypeError, KeyError, AttributeError, ValueError, AssertionError, SystemExit)
    return not isinstance(error, bugs)


def _line(error: BaseException) -> str:
    return first_line(error)[:300]
