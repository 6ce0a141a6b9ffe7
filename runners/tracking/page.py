"""A sweep's experiment in MLflow beside its runs: where its page is, its report's files, and its results table.

The table is the one thing that is read back, for a sweep whose results folder is not at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.exc import SQLAlchemyError

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.uri import TrackingError, require_database, sqlite_file
from goal_sweep.sweeps.results import RESULTS_FILE

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
        with _told(f"cannot read tracking at {uri}"):
            self.client: Any = MlflowClient(tracking_uri=uri)
            experiment = find_experiment(self.client, name)
            if experiment is None or experiment.lifecycle_stage == "deleted":
                raise TrackingError(f"no experiment {name!r} in {uri}; goal-sweep sync writes it from the results")
            if has_moved(experiment, uri):
                raise TrackingError(f"the folder of {uri} was copied or moved; goal-sweep sync writes its runs again")
            self.experiment_id = str(experiment.experiment_id)
            self._view = min((key for key in experiment.tags if key.startswith(names.VIEW)), default="")
            query = f"tags.`{names.ROLE}` = '{names.ROLE_SWEEP}'"
            parents = self.client.search_runs([self.experiment_id], query, order_by=["attributes.start_time ASC"])
            if not parents:
                raise TrackingError(f"experiment {name!r} in {uri} has no run of the sweep; see goal-sweep sync")
            self.parent = parents[0]

    @property
    def address(self) -> str:
        """Where the runs are shown: on the tracking server or, for a database, where `goal-sweep ui` serves it."""
        return self.address_at(self.uri.rstrip("/") if self.uri.startswith(("http://", "https://")) else LOCAL_PAGE)

    def address_at(self, server: str) -> str:
        """Where a server shows the runs. MLflow shows traces of language models unless the address says otherwise."""
        return f"{server}/#/experiments/{self.experiment_id}/runs?workflowType=machine_learning"

    def charts_at(self, server: str) -> str:
        """Where a server shows the first block's objectives in charts; its other views are in the page's menu."""
        key = self._view.rpartition(".")[2]
        return f"{self.address_at(server)}&compareRunsMode=CHART{'&viewStateShareKey=' if key else ''}{key}"

    def results_table(self) -> bytes:
        """The sweep's results table among the parent run's artifacts.

        Raises:
            TrackingError: there is none, or it cannot be read.
        """
        with _told(f"{self.uri} has no {RESULTS_FILE} of sweep {self.name!r}"), TemporaryDirectory() as folder:
            return Path(self.client.download_artifacts(self.parent.info.run_id, RESULTS_FILE, folder)).read_bytes()

    def attach_report(self, folder: Path, files: Sequence[str]) -> None:
        """Log a report as ``report/`` among the parent run's artifacts; afterwards this contains exactly these files.

        New files are logged before stale ones are removed, so the run always has a report.

        Args:
            folder: the report's folder.
            files: its files, relative to it, with forward slashes.

        Raises:
            TrackingError: a file cannot be logged.
        """
        with _told("cannot attach the report"):
            repository = get_artifact_repository(self.parent.info.artifact_uri, tracking_uri=self.uri)
            before = _artifacts(repository, "report")
            for name in files:
                repository.log_artifact(str(folder / name), str(PurePosixPath("report", name).parent))
            for path in sorted(set(before) - {str(PurePosixPath("report", name)) for name in files}):
                repository.delete_artifacts(path)


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


@contextmanager
def _told(what: str) -> Any:
    """Turn the errors of MLflow and its artifact stores into one line."""
    try:
        yield
    except TrackingError:
        raise
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise TrackingError(f"{what}: {first_line(error)[:300]}") from error


def _artifacts(repository: Any, folder: str) -> list[str]:
    items = repository.list_artifacts(folder)
    below = [path for item in items if item.is_dir for path in _artifacts(repository, item.path)]
    return [item.path for item in items if not item.is_dir] + below
