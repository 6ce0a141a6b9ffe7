"""The connection to a sweep's experiment in MLflow, which people browse.

Only the driver writes, through a queue with its own thread. A slow, locked or absent MLflow never delays training, and
calls are retried until the launch ends. `runners.tracking.sync` decides from the store what is written.
"""

from __future__ import annotations

import logging
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
from runners.tracking.queue import AfterError, CallQueue
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
        self._queue = CallQueue(_judge, self._trouble)
        self._submit(lambda runs: None)

    def update(self, call: Callable[[RunWriter], None]) -> None:
        """Queue a change of the runs.

        Args:
            call: makes the change; it must be safe to repeat, because it is called again when MLflow fails halfway.
        """
        self._submit(call)

    def tell(self, text: str) -> None:
        """Report trouble that does not stop anything."""
        self._trouble(text)

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
            self._raise_if_stopped()
        return self._opened.is_set()

    def _wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait for an event, unless tracking fails first. Returns whether it has happened."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._queue.stopped is None and self._queue.trouble is None:
            if event.wait(0.02):
                break
        return event.is_set()

    @property
    def why_late(self) -> str:
        """Why changes are not in MLflow yet."""
        if self._queue.trouble is not None:
            return f"tracking does not answer: {_line(self._queue.trouble)}"
        if not self._answered.is_set() and self._queue.stopped is None:
            return "tracking does not answer"
        return self.warnings[-1] if self.warnings else "MLflow is slow to answer"

    def require_own(self) -> None:
        """Check that the runs have not turned out to be another store's.

        Raises:
            OtherStoreError: they have.
        """
        if isinstance(self._queue.stopped, OtherStoreError):
            raise self._queue.stopped

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
        return self._queue.flush(max(0.0, deadline - time.monotonic()), patient=patient)

    def close(self, outcome: Outcome | None = None, timeout: float = 60.0) -> int:
        """Set the parent run's status, write what is left, and stop.

        Args:
            outcome: makes the parent run FINISHED, FAILED or KILLED; None does not change it.
            timeout: seconds that MLflow may take.

        Returns:
            Number of updates that were not written.
        """
        if outcome is not None:
            self._submit(lambda runs: runs.set_parent_status(_PARENT_STATUS[outcome]))
        return self._queue.close(timeout)

    # Internals, which run on the queue's thread.

    def _submit(self, call: Callable[[RunWriter], None]) -> None:
        self._queue.submit(lambda: self._perform(call))

    def _perform(self, call: Callable[[RunWriter], None], *, again: bool = True) -> None:
        runs = self._open()
        try:
            call(runs)
        except Exception as error:
            # After an error it is unknown what arrived, so everything is read again before the next call.
            self._runs = None
            refused = isinstance(error, MlflowException) and error.error_code in _REFUSALS
            if not (refused and again):
                raise
        else:
            return
        # Somebody may have deleted the run or the experiment, so try once more with what exists now.
        self._perform(call, again=False)

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
            self._trouble("runs have disappeared from MLflow; they are written again from the store")
        self._known |= runs.runs.keys()
        self._runs = runs
        self._opened.set()
        return runs

    def _connect(self) -> Any:
        _silence()
        if self._file is None:
            return MlflowClient(self._uri)
        if self._client is None and (warning := network_warning(self._file)):
            self._trouble(warning)
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
            self._trouble(f"the MLflow experiment {self._name!r} had been deleted and was restored")
        return str(experiment.experiment_id)

    def _trouble(self, text: str) -> None:
        self.warnings.append(text)
        self._warn(text)

    def _raise_if_stopped(self) -> None:
        error = self._queue.stopped
        if error is not None and not isinstance(error, OtherStoreError):  # with which the store can still be filled
            raise error if isinstance(error, TrackingError) else TrackingError(_line(error)) from error


def _judge(error: Exception) -> AfterError:
    if isinstance(error, TrackingError):
        return AfterError.STOP
    if isinstance(error, MlflowException):
        return AfterError.DROP if error.error_code in _REFUSALS else AfterError.RETRY
    if isinstance(error, GoalError):
        return AfterError.DROP
    # Connections and databases raise errors of many libraries, which are worth a retry; a bug in our code is not.
    ours = isinstance(error, (TypeError, KeyError, AttributeError, ValueError, AssertionError))
    return AfterError.DROP if ours else AfterError.RETRY


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
