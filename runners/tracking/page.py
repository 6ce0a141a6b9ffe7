"""A sweep's page in MLflow: its address, and the report's files beside the results table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.exc import SQLAlchemyError

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.experiment import find_experiment, has_moved
from goal_sweep.runners.tracking.uri import TrackingError, require_database

LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking database that is a file."""


class SweepPage:
    """A sweep's experiment in MLflow, which must exist.

    Args:
        uri: a resolved tracking URI.
        name: the sweep's name.

    Raises:
        TrackingError: there is no such experiment, or tracking cannot be read.
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
            folder: the report's folder.
            files: its files, relative to it, with forward slashes.

        Raises:
            TrackingError: a file cannot be logged.
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
