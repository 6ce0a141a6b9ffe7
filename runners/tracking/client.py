"""The connection to a sweep's experiment in MLflow, which people browse: made again after whatever went wrong."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.page import find_experiment, has_moved
from goal_sweep.runners.tracking.runs import RunWriter
from goal_sweep.runners.tracking.uri import TrackingError, file_identity, network_warning, prepare_database, sqlite_file

_REFUSALS = frozenset(
    {"RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST"}
)


class Experiment:
    """Opens a sweep's experiment, which is made if it is not there, for changes of its runs.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.
        name: the sweep's name, which is that of its experiment and its parent run.
        store: the store whose results the runs show.
        live: whether this process trains, so that the parent run is shown as running.
        take_over: whether runs that show another store's results become this one's.
        tell: receives one line about what was found amiss and mended.
    """

    def __init__(
        self, uri: str, name: str, store: Store, *, live: bool, take_over: bool, tell: Callable[[str], None]
    ) -> None:
        self.file = sqlite_file(uri)
        """The database, if it is a file."""
        self.answered, self.opened = False, False
        """Whether MLflow has ever answered, and whether the runs have been read."""
        self._uri, self._name, self._store = uri, name, store
        self._live, self._take_over, self._tell = live, take_over, tell
        self._identity: tuple[int, int] | None = None
        self._client: Any = None
        self._runs: RunWriter | None = None
        self._known: frozenset[str] = frozenset()

    def change(self, call: Callable[[RunWriter], None]) -> None:
        """Change the runs.

        Args:
            call: safe to repeat, for it is called again where somebody has deleted the run or the experiment.
        """
        for is_last in (False, True):
            runs = self._open()
            try:
                return call(runs)
            except Exception as error:
                if not _is_refusal(error):
                    raise
                self._runs = None  # so that everything is read again
                if is_last:
                    raise

    def _open(self) -> RunWriter:
        replaced = self.file is not None and file_identity(self.file) != self._identity
        if self._runs is not None and not replaced:
            return self._runs
        self._runs = None
        if self._client is None or replaced:
            self._client = self._connect()
        experiment = self._experiment()
        self.answered = True
        runs = RunWriter(self._client, experiment, self._name, self._store, take_over=self._take_over)
        if self._live:
            runs.set_parent_status("RUNNING")
        if not self._known <= runs.runs.keys():
            self._tell("runs have disappeared from MLflow; they are written again from the store")
        self._known |= runs.runs.keys()
        self._runs = runs
        self.opened = True
        return runs

    def _connect(self) -> Any:
        _silence()
        if self.file is None:
            return MlflowClient(self._uri)
        if self._client is None and (warning := network_warning(self.file)):
            self._tell(warning)
        if self._client is not None and not self.file.parent.is_dir():  # such as a folder that is not mounted any more
            raise FileNotFoundError(f"{self.file.parent} is gone")
        prepare_database(self.file, create_database)
        if self._client is not None:
            _let_go(self._client)  # close the replaced file
        self._identity = file_identity(self.file)
        try:
            return MlflowClient(self._uri)
        except MlflowException as error:
            if "out-of-date database schema" in str(error):
                raise TrackingError(
                    f"the tracking database {self.file} is from an older MLflow; run: mlflow db upgrade {self._uri}"
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
            artifacts = None if self.file is None else (self.file.parent / "artifacts" / self._name).as_uri()
            tags = {names.SWEEP: self._name, **names.KIND}
            return str(self._client.create_experiment(self._name, artifact_location=artifacts, tags=tags))
        if experiment.lifecycle_stage == "deleted":
            self._client.restore_experiment(experiment.experiment_id)
            self._tell(f"the MLflow experiment {self._name!r} had been deleted and was restored")
        return str(experiment.experiment_id)


def is_temporary(error: Exception) -> bool:
    """Whether a change may succeed later."""
    if isinstance(error, MlflowException):
        return not _is_refusal(error)
    # Connections and databases raise errors of many libraries, which are worth a retry; a bug in our code is not.
    return not isinstance(error, (GoalError, TypeError, KeyError, AttributeError, ValueError, AssertionError))


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


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
