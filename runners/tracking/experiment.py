"""A sweep's experiment in MLflow: made, found again after its folder was moved, and read; with the report's files."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.exc import SQLAlchemyError

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.tracking import values as names
from goal_sweep.runners.tracking.uri import TrackingError, prepare_database, require_database, sqlite_file, sqlite_uri

LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking database that is a file."""


def connect(uri: str) -> Any:
    """A client of a tracking database, which is made if it is missing, or of a server.

    Raises `TrackingError` where it can never work: the file is not a database, or of an older MLflow.
    """
    for name in ("mlflow", "alembic"):  # which log migrations, and each database error with its trace
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    file = sqlite_file(uri)
    if file is not None:
        prepare_database(file, create_database)
    try:
        return MlflowClient(uri)
    except MlflowException as error:
        if "out-of-date database schema" in str(error):
            raise TrackingError(
                f"the tracking database {file or uri} is from an older MLflow; run: mlflow db upgrade {uri}"
            ) from error
        raise


def create_database(path: Path) -> None:
    """Create an empty tracking database with all its tables, and close it."""
    client: Any = MlflowClient(sqlite_uri(path))
    client.search_experiments(max_results=1)


def find_experiment(client: Any, name: str) -> Any:
    """A sweep's experiment, by its name or, where a user renamed it, by its tag; None without one."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        tagged = client.search_experiments(filter_string=f"tags.`{names.SWEEP}` = '{name}'", max_results=1)
        experiment = tagged[0] if tagged else None
    return experiment


def has_moved(experiment: Any, uri: str) -> bool:
    """Whether a sweep's artifacts are elsewhere than beside its database: it was copied or moved since.

    MLflow keeps absolute addresses, so those in a copy are of the original, where nothing may be written.
    """
    database, address = sqlite_file(uri), urlsplit(experiment.artifact_location)
    if database is None or address.scheme not in ("", "file") or names.SWEEP not in experiment.tags:
        return False
    # A folder has several names where symbolic links lead to it.
    return not Path(unquote(address.path)).resolve().is_relative_to(database.parent.resolve())


def ensure_experiment(client: Any, uri: str, name: str) -> str:
    """The id of a sweep's experiment, which is made, restored, or made anew where its folder has moved."""
    experiment = find_experiment(client, name)
    if experiment is not None and has_moved(experiment, uri):
        client.rename_experiment(experiment.experiment_id, f"{name} (moved {uuid.uuid4().hex[:8]})")
        client.delete_experiment(experiment.experiment_id)
        experiment = None
    if experiment is None:
        file, tags = sqlite_file(uri), {names.SWEEP: name, **names.KIND}
        artifacts = None if file is None else (file.parent / "artifacts" / name).as_uri()
        return str(client.create_experiment(name, artifact_location=artifacts, tags=tags))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


class SweepPage:
    """A sweep's experiment in MLflow, which must exist.

    Raises `TrackingError` where there is no such experiment, or tracking cannot be read.
    """

    def __init__(self, uri: str, name: str) -> None:
        require_database(uri)
        self.uri, self.name = uri, name
        with told(f"cannot read tracking at {uri}"):
            client: Any = MlflowClient(tracking_uri=uri)
            experiment = find_experiment(client, name)
            if experiment is None or experiment.lifecycle_stage == "deleted":
                raise TrackingError(f"no experiment {name!r} in {uri}; goal-sweep sync writes it from the results")
            if has_moved(experiment, uri):
                raise TrackingError(f"the folder of {uri} was copied or moved; goal-sweep sync writes its runs again")
            self.experiment_id = str(experiment.experiment_id)
            query = f"tags.`{names.ROLE}` = '{names.ROLE_SWEEP}'"
            parents = client.search_runs([self.experiment_id], query, order_by=["attributes.start_time ASC"])
            if not parents:
                raise TrackingError(f"experiment {name!r} in {uri} has no run of the sweep; see goal-sweep sync")
            self._artifacts = parents[0].info.artifact_uri

    @property
    def address(self) -> str:
        """Where the runs are shown: on the tracking server or, for a database, where `goal-sweep ui` serves it."""
        return self.address_at(self.uri.rstrip("/") if self.uri.startswith(("http://", "https://")) else LOCAL_PAGE)

    def address_at(self, server: str) -> str:
        """Where a server shows the runs. MLflow shows traces of language models unless the address says otherwise."""
        return f"{server}/#/experiments/{self.experiment_id}/runs?workflowType=machine_learning"

    def attach_report(self, folder: Path, files: Sequence[str]) -> None:
        """Log a report as ``report/`` among the parent run's artifacts; afterwards this contains exactly these files.

        Args:
            files: relative to the folder, with forward slashes.
        """
        with told("cannot attach the report"):
            repository = get_artifact_repository(self._artifacts, tracking_uri=self.uri)
            repository.delete_artifacts("report")
            for name in files:
                repository.log_artifact(str(folder / name), str(PurePosixPath("report", name).parent))


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn the errors of MLflow and its artifact stores into one line."""
    try:
        yield
    except TrackingError:
        raise
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise TrackingError(f"{what}: {first_line(error)[:300]}") from error
