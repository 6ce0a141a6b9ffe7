"""A sweep's experiment in MLflow: connected to, made, found again after the sweep's folder was moved."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.uri import TrackingError, prepare_database, sqlite_file


def connect(uri: str) -> Any:
    """A client of a tracking database, which is made if it is missing, or of a server.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.

    Raises:
        TrackingError: it can never work: the file is not a database, or of an older MLflow.
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
    client: Any = MlflowClient(f"sqlite:///{path}")
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
