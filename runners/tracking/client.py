"""MLflow, which people browse and `analysis` reads. The only module of runners that imports mlflow.

The driver alone writes, through a queue with a thread of its own. A slow, locked or absent MLflow never holds up
training, and is tried again until the launch ends. `runners.tracking.sync` decides what is written, from the store.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from goal_core.errors import GoalError
from runners.tracking import schema as names
from runners.tracking.queue import CallQueue, Verdict, one_line
from runners.tracking.runs import RunWriter
from runners.tracking.uri import TrackingError, file_identity, network_warning, prepare_database, sqlite_file
from sweeps import ResolvedSweep

_log = logging.getLogger(__name__)
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
    """The way to a sweep's runs in MLflow. Every method but `wait_open`, `flush` and `close` returns at once.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.
        sweep: what the experiment and its parent run are about.
        live: whether this process trains: the parent run is then shown as running.
        warn: told in one line of trouble and of its end, on another thread; they are kept in `warnings` too.
    """

    def __init__(
        self, uri: str, sweep: ResolvedSweep, *, live: bool = True, warn: Callable[[str], None] = _log.warning
    ) -> None:
        self.warnings: list[str] = []
        self._uri, self._sweep, self._live, self._warn = uri, sweep, live, warn
        self._name = sweep.config.name
        self._file = sqlite_file(uri)
        self._identity: tuple[int, int] | None = None
        self._client: Any = None
        self._runs: RunWriter | None = None
        self._known: frozenset[str] = frozenset()
        self._opened = threading.Event()
        self._queue = CallQueue(_judge, self._trouble)
        self._submit(lambda runs: None)

    def update(self, call: Callable[[RunWriter], None]) -> None:
        """Have something done to the runs, after what was said before.

        Args:
            call: must do nothing where it is done already: it is made again when MLflow fails halfway.
        """
        self._submit(call)

    def tell(self, text: str) -> None:
        """Tell of trouble that stops nothing."""
        self._trouble(text)

    def wait_open(self, timeout: float = 30.0) -> bool:
        """Wait until MLflow has answered.

        Args:
            timeout: seconds.

        Returns:
            Whether it has; otherwise it is down, and is tried again and again.

        Raises:
            TrackingError: it cannot work as it is set up, now or later.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._queue.stopped is None:
            if self._opened.wait(0.02):
                return True
        self._raise_if_stopped()
        return self._opened.is_set()

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until everything said so far is in MLflow; whether it is after ``timeout`` seconds."""
        return self._queue.flush(timeout)

    def close(self, outcome: Outcome | None = None, timeout: float = 60.0) -> int:
        """Say how the sweep stands, write what is left, and let go.

        Args:
            outcome: the parent run becomes FINISHED, FAILED or KILLED; None leaves it.
            timeout: seconds that MLflow may take.

        Returns:
            How many updates were still waiting.
        """
        if outcome is not None:
            self._submit(lambda runs: runs.set_parent_status(_PARENT_STATUS[outcome]))
        return self._queue.close(timeout)

    # How it is done, all of it on the queue's thread.

    def _submit(self, call: Callable[[RunWriter], None]) -> None:
        self._queue.submit(lambda: self._perform(call))

    def _perform(self, call: Callable[[RunWriter], None], *, again: bool = True) -> None:
        runs = self._open()
        try:
            call(runs)
        except Exception as error:
            # After an error nobody knows what arrived; before the next call everything is read again.
            self._runs = None
            refused = isinstance(error, MlflowException) and error.error_code in _REFUSALS
            if not (refused and again):
                raise
        else:
            return
        # Somebody may have deleted the run or the experiment: once more, with what is there now.
        self._perform(call, again=False)

    def _open(self) -> RunWriter:
        replaced = self._file is not None and file_identity(self._file) != self._identity
        if self._runs is not None and not replaced:
            return self._runs
        self._runs = None
        if self._client is None or replaced:
            self._client = self._connect()
        runs = RunWriter(self._client, self._experiment(), self._sweep)
        if self._live:
            runs.set_parent_status("RUNNING")
        if not self._known <= runs.runs.keys():
            self._trouble("runs have vanished from tracking; they are written again from the store")
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
            _let_go(self._client)  # of the file that had the name before
        self._identity = file_identity(self._file)
        try:
            return MlflowClient(self._uri)
        except MlflowException as error:
            if "out-of-date database schema" in str(error):
                raise TrackingError(
                    f"the tracking database {self._file} is of an older MLflow: run  mlflow db upgrade {self._uri}"
                ) from error
            raise

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._name) or self._renamed()
        if found is None:
            artifacts = None if self._file is None else (self._file.parent / "artifacts" / self._name).as_uri()
            tags = {names.SWEEP: self._name}
            return str(self._client.create_experiment(self._name, artifact_location=artifacts, tags=tags))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
            self._trouble(f"the MLflow experiment {self._name!r} had been deleted; it is restored")
        return str(found.experiment_id)

    def _renamed(self) -> Any:
        """The sweep's experiment under the name that somebody gave it, or None."""
        mine = f"tags.`{names.SWEEP}` = '{self._name}'"
        found = self._client.search_experiments(filter_string=mine, max_results=1)
        return found[0] if found else None

    def _trouble(self, text: str) -> None:
        self.warnings.append(text)
        self._warn(text)

    def _raise_if_stopped(self) -> None:
        error = self._queue.stopped
        if error is not None:
            raise error if isinstance(error, TrackingError) else TrackingError(one_line(error)) from error


def _judge(error: Exception) -> Verdict:
    if isinstance(error, TrackingError):
        return Verdict.STOP
    if isinstance(error, MlflowException):
        return Verdict.DROP if error.error_code in _REFUSALS else Verdict.RETRY
    if isinstance(error, GoalError):
        return Verdict.DROP
    # Connections and databases fail in their own libraries' ways; a bug of ours must not be repeated for ever.
    ours = isinstance(error, (TypeError, KeyError, AttributeError, ValueError, AssertionError))
    return Verdict.DROP if ours else Verdict.RETRY


def create_database(path: Path) -> None:
    """Create an empty tracking database with all its tables, and let go of it."""
    client = MlflowClient(f"sqlite:///{path}")
    client.search_experiments(max_results=1)
    _let_go(client)


def _let_go(client: Any) -> None:
    """Close the database connections that MLflow keeps for the life of the process."""
    client._tracking_client.store.engine.dispose()


def _silence() -> None:
    """MLflow and alembic tell of their migrations, and print each database error with its trace; ours is one line."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
