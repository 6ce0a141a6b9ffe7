"""The connection to a sweep's experiment in MLflow, which people browse.

Only the driver writes, through a queue with its own thread, so a slow, locked or absent MLflow never delays training;
calls are retried until the launch ends. The thread is a daemon. Python joins the threads of a pool when it exits, and
then a hanging call would keep a finished launch alive. `runners.tracking.sync` decides from the store what is written.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from goal_core.basics.errors import GoalError, first_line
from runners.store import Store
from runners.tracking import schema as names
from runners.tracking.page import find_experiment, has_moved
from runners.tracking.runs import RunWriter
from runners.tracking.uri import (
    OtherStoreError,
    TrackingError,
    file_identity,
    network_warning,
    prepare_database,
    sqlite_file,
)

_log = logging.getLogger(__name__)
RETRY_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait before each retry of a call; the last one repeats."""
ANSWER_S = 5.0
"""Seconds after which a server that has not answered at all is not waited for, where nobody is patient."""
Outcome = Literal["done", "failed", "interrupted"]
_PARENT_STATUS: Mapping[Outcome, Literal["FINISHED", "FAILED", "KILLED"]] = {
    "done": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
_REFUSALS = frozenset(
    {"RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST"}
)


Call = Callable[[RunWriter], None]
"""A change of the runs. It must be safe to repeat, because it is called again when MLflow fails halfway."""


class Tracking:
    """Gives access to a sweep's runs in MLflow. All methods except `wait_open`, `flush` and `close` return at once.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.
        name: the sweep's name, which is that of its experiment and its parent run.
        store: the store whose results the runs show; None for one that nobody knows.
        live: whether this process trains, so that the parent run is shown as running.
        take_over: whether runs that show another store's results become this one's.
        warn: receives one line when trouble begins and one when it ends, on another thread; `warnings` keeps them too.
    """

    def __init__(
        self,
        uri: str,
        name: str,
        store: Store | None = None,
        *,
        live: bool = True,
        take_over: bool = False,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self.warnings: list[str] = []
        self._uri, self._name, self._live, self._warn = uri, name, live, warn
        self._store, self._take_over = store, take_over
        self._file = sqlite_file(uri)
        self._identity: tuple[int, int] | None = None
        self._client: Any = None
        self._runs: RunWriter | None = None
        self._known: frozenset[str] = frozenset()
        self._answered, self._opened = threading.Event(), threading.Event()
        self._calls: queue.Queue[Call] = queue.Queue()
        self._closing = threading.Event()
        self._stopped: TrackingError | None = None
        """The error that ended all calls, if any."""
        self._trouble: Exception | None = None
        """Why the current call failed and is retried; None while all goes well."""
        threading.Thread(target=self._work, name="goal-sweep tracking", daemon=True).start()
        self.update(lambda runs: None)

    def update(self, call: Call) -> None:
        """Queue a change of the runs."""
        if self._stopped is None and not self._closing.is_set():
            self._calls.put(call)

    def tell(self, text: str) -> None:
        """Report trouble that does not stop anything."""
        self.warnings.append(text)
        self._warn(text)

    def wait_open(self, timeout: float = 30.0) -> bool:
        """Wait until MLflow has answered.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Whether it has answered. If not, it is slow or down; this returns with the first failure, and calls are
            retried.

        Raises:
            TrackingError: MLflow can never work with these settings.
        """
        # A server that is silent can still be wrong only in ways that show at once.
        if not self._wait(self._opened, timeout if self._file is not None else min(timeout, ANSWER_S)):
            if self._stopped is not None and not isinstance(self._stopped, OtherStoreError):
                raise self._stopped
        return self._opened.is_set()

    def _wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait for an event, unless tracking fails first. Returns whether it has happened."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._stopped is None and self._trouble is None:
            if event.wait(0.02):
                break
        return event.is_set()

    @property
    def why_late(self) -> str:
        """Why changes are not in MLflow yet."""
        if self._trouble is not None:
            return f"tracking does not answer: {_line(self._trouble)}"
        if not self._answered.is_set() and self._stopped is None:
            return "tracking does not answer"
        return self.warnings[-1] if self.warnings else "MLflow is slow to answer"

    def require_own(self) -> None:
        """Check that the runs have not turned out to be another store's.

        Raises:
            OtherStoreError: they have.
        """
        if isinstance(self._stopped, OtherStoreError):
            raise self._stopped

    def flush(self, timeout: float = 60.0, *, patient: bool = True) -> bool:
        """Wait until all changes are in MLflow.

        Args:
            timeout: seconds to wait at most.
            patient: also wait for a server that is down, if it has ever answered.

        Returns:
            Whether all changes are in MLflow.
        """
        deadline = time.monotonic() + timeout
        if self._file is None:
            # A host that swallows packets gives no error for a long time.
            first = min(ANSWER_S, timeout)
            if not (self._answered.wait(first) if patient else self._wait(self._answered, first)):
                return False
        return self._wait_for_calls(max(0.0, deadline - time.monotonic()), patient=patient)

    def _wait_for_calls(self, timeout: float, *, patient: bool = True) -> bool:
        with self._calls.all_tasks_done:
            self._calls.all_tasks_done.wait_for(
                lambda: not self._calls.unfinished_tasks or (self._trouble and not patient), timeout
            )
            return not self._calls.unfinished_tasks and self._stopped is None

    def close(self, outcome: Outcome | None = None, timeout: float = 60.0) -> int:
        """Set the parent run's status, write what is left, and stop.

        Args:
            outcome: makes the parent run FINISHED, FAILED or KILLED; None does not change it.
            timeout: seconds that MLflow may take.

        Returns:
            Number of updates that were not written.
        """
        if outcome is not None:
            self.update(lambda runs: runs.set_parent_status(_PARENT_STATUS[outcome]))
        self._wait_for_calls(timeout)
        left = self._calls.unfinished_tasks
        self._closing.set()
        self._calls.put(lambda runs: None)  # wakes the thread
        return left

    # Internals, which run on the queue's thread.

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if self._closing.is_set():
                return
            if self._stopped is None:
                self._make(call)
            self._calls.task_done()

    def _make(self, call: Call) -> None:
        """Make a call, again and again while MLflow is down."""
        for tried in itertools.count():
            try:
                self._perform(call)
            except TrackingError as error:
                self._stopped = error
                self.tell(f"tracking is off for this launch: {_line(error)}")
            except Exception as error:
                _log.debug("tracking call failed", exc_info=error)
                if not _is_temporary(error):
                    self.tell(f"a tracking update failed and is skipped: {_line(error)}")
                else:
                    if not tried:
                        self._note(error)
                    if not self._closing.wait(RETRY_WAITS_S[min(tried, len(RETRY_WAITS_S) - 1)]):
                        continue
            else:
                if tried:
                    left = self._calls.unfinished_tasks - 1
                    self.tell(f"tracking works again; {left} updates are still to be written")
            break
        self._trouble = None

    def _note(self, error: Exception) -> None:
        """Let those who wait know that MLflow does not answer."""
        with self._calls.all_tasks_done:
            self._trouble = error
            self._calls.all_tasks_done.notify_all()
        self.tell(f"tracking does not answer; training continues and tracking will catch up: {_line(error)}")

    def _perform(self, call: Call) -> None:
        for is_last in (False, True):
            runs = self._open()
            try:
                return call(runs)
            except Exception as error:
                # After an error it is unknown what arrived, so everything is read again before the next call.
                self._runs = None
                # Somebody may have deleted the run or the experiment, so try once more with what exists now.
                refused = isinstance(error, MlflowException) and error.error_code in _REFUSALS
                if is_last or not refused:
                    raise

    def _open(self) -> RunWriter:
        replaced = self._file is not None and file_identity(self._file) != self._identity
        if self._runs is not None and not replaced:
            return self._runs
        self._runs = None
        if self._client is None or replaced:
            self._client = self._connect()
        experiment = self._experiment()
        self._answered.set()
        runs = RunWriter(self._client, experiment, self._name, self._store, take_over=self._take_over)
        if self._live:
            runs.set_parent_status("RUNNING")
        if not self._known <= runs.runs.keys():
            self.tell("runs have disappeared from MLflow; they are written again from the store")
        self._known |= runs.runs.keys()
        self._runs = runs
        self._opened.set()
        return runs

    def _connect(self) -> Any:
        _silence()
        if self._file is None:
            return MlflowClient(self._uri)
        if self._client is None and (warning := network_warning(self._file)):
            self.tell(warning)
        prepare_database(self._file, create_database)
        if self._client is not None:
            _let_go(self._client)  # close the replaced file
        self._identity = file_identity(self._file)
        try:
            return MlflowClient(self._uri)
        except MlflowException as error:
            if "out-of-date database schema" in str(error):
                raise TrackingError(
                    f"the tracking database {self._file} is from an older MLflow; run: mlflow db upgrade {self._uri}"
                ) from error
            raise

    def _experiment(self) -> str:
        experiment = find_experiment(self._client, self._name)
        if experiment is not None and has_moved(experiment, self._uri):
            # The files of its runs are where they were, in a folder that is not to be written any more.
            self._client.rename_experiment(experiment.experiment_id, f"{self._name} (moved {uuid.uuid4().hex[:8]})")
            self._client.delete_experiment(experiment.experiment_id)
            experiment = None
        if experiment is None:
            artifacts = None if self._file is None else (self._file.parent / "artifacts" / self._name).as_uri()
            tags = {names.SWEEP: self._name, **names.KIND}
            return str(self._client.create_experiment(self._name, artifact_location=artifacts, tags=tags))
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
            self.tell(f"the MLflow experiment {self._name!r} had been deleted and was restored")
        return str(experiment.experiment_id)


def _is_temporary(error: Exception) -> bool:
    """Whether a call may succeed later. If not, it is skipped."""
    if isinstance(error, MlflowException):
        return error.error_code not in _REFUSALS
    # Connections and databases raise errors of many libraries, which are worth a retry; a bug in our code is not.
    return not isinstance(error, (GoalError, TypeError, KeyError, AttributeError, ValueError, AssertionError))


def _line(error: Exception) -> str:
    return first_line(error)[:300]


def create_database(path: Path) -> None:
    """Create an empty tracking database with all its tables, and close it."""
    client = MlflowClient(f"sqlite:///{path}")
    client.search_experiments(max_results=1)
    _let_go(client)


def _let_go(client: Any) -> None:
    """Close the database connections that MLflow keeps for the life of the process."""
    client._tracking_client.store.engine.dispose()


def _silence() -> None:
    """Silence MLflow and alembic: they log migrations, and each database error with its trace. We report one line."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
