"""A sweep's experiment in MLflow: made, found again after its folder was moved, and read, with the report's files.

The names of its tags and metrics are here, and what a training has of them, by its row in the results table.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep; its artifacts are the results table and the report
    child run per training      found again by goal.stage_key; goal.role = report, or candidate for one of a search
"""

import json
import logging
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sqlalchemy.exc import SQLAlchemyError

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.goal_core.evaluation.metrics import TEST, VAL
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.runners.tracking.uri import TrackingError, prepare_database, require_database, sqlite_file, sqlite_uri
from goal_sweep.sweeps.results import EPOCHS, LIMITS, SETTING

PARENT_RUN: Final = "mlflow.parentRunId"
SOURCE: Final = {"mlflow.source.name": "goal-sweep launch", "mlflow.source.type": "LOCAL"}
"""MLflow's own tags, which its page shows as "Source"."""
SWEEP: Final = "goal.sweep"
"""The sweep's name, on its experiment and its parent run."""
ROLE: Final = "goal.role"
ROLE_SWEEP: Final = "sweep"
FORMER: Final = "former"
"""The role of a run whose training the sweep no longer asks for, because a setting, the data or a choice changed."""
STAGE_KEY: Final = "goal.stage_key"
STATUS: Final = "goal.status"
OBJECTIVE: Final = "objective"
"""The parameter ``pair/triplet``, by which runs can be grouped."""
_TAGGED = (
    *("cell", "stage", "pair", "triplet", "seed", "backbone", "framework", "dataset", "status", "git_commit"),
    *("data_fingerprint", "role", "variant", "configuration", "grid", "reason", "checkpoint"),
)
COLUMNS_OF_TAGS: Final[Mapping[str, str]] = {f"goal.{name}": name for name in _TAGGED} | {STAGE_KEY: "training"}
"""The tags of a training's run, each with its column of the results table; those that are empty are left out."""
SELECTED: Final = "selected/val_"
"""Prefix of the selected epoch's metrics on the val split, so that ranking runs by val and reading their test metrics
speaks of the same weights."""
_ORDER: Final = f"metrics.`{SELECTED}rsum`"
"""What runs are sorted by. MLflow lists all runs that are sorted by a metric; others it may hide below their parent."""
_VIEW = {
    **{"searchFilter": f"tags.`{ROLE}` = 'report'", "orderByKey": _ORDER, "orderByAsc": False},
    "selectedColumns": [_ORDER, "metrics.`test/i2t_r1`", "metrics.`test/t2i_r1`"],
}
_PAGE: Final = {
    "mlflow.experimentKind": "custom_model_development",  # or else the page shows traces of language models
    "mlflow.sharedViewState.goal": json.dumps(_VIEW),
}
"""MLflow's tags of an experiment that say what its page shows."""
_MAX_TAG = 4000
_TIMES = (f"{EPOCHS}epoch", f"{EPOCHS}time")
Row = Mapping[str, Any]
"""A row of the results table; of a training that only begins, without the columns that come from the store."""
LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking database that is a file."""


class LoggedStep(NamedTuple):
    """The metrics of one step."""

    step: int
    metrics: Mapping[str, float]
    """Finite ones only: MLflow would store an infinity as 1.8e308, which looks like any other number in a table."""
    time_ms: int
    """Milliseconds since 1970. A step always has the same time, so the database itself drops a repeated one."""


def tags_of(row: Row) -> dict[str, str]:
    """The tags of a training's run."""
    tags = {tag: str(row.get(column) or "")[:_MAX_TAG] for tag, column in COLUMNS_OF_TAGS.items()}
    if row.get("git_diff"):
        tags["goal.git_commit"] += f", modified ({row['git_diff']})"
    return {tag: text for tag, text in tags.items() if text} | SOURCE


def name_of(row: Row) -> str:
    """The name of a training's run: the seed first, because MLflow's lists cut a name where it ends."""
    seed = f"seed {row['seed']}"
    return f"{seed} {row['name'].replace(f' {seed}', '', 1)}"


def params_of(row: Row) -> dict[str, str]:
    """The parameters of a training's run: its objective, and the settings that its key hashes, which never change."""
    limits = {f"{SETTING}data.{name}" for name in LIMITS}  # which may be others for equal data
    hashed = (name for name in row if name.startswith(SETTING) and name not in limits)
    own = {name.removeprefix(SETTING): row[name] for name in hashed if row[name]}
    return {OBJECTIVE: objective_name(row["pair"], row["triplet"])} | own


def final_of(row: Row) -> LoggedStep:
    """The metrics of a finished training on the test split, and those of the selected epoch on the val split."""
    test = {name: value for name, value in row.items() if name.startswith(TEST)}
    val = {SELECTED + name.removeprefix(VAL): value for name, value in row.items() if name.startswith(VAL)}
    return logged(int(row["best_epoch"]), {**test, **val}, row["ended"])


def epochs_of(row: Row) -> Iterator[LoggedStep]:
    """The metrics of each recorded epoch."""
    names = [name for name in row if name.startswith(EPOCHS) and name not in _TIMES and row[name]]
    for number, epoch in enumerate(row.get(_TIMES[0]) or []):
        metrics = {name.removeprefix(EPOCHS): row[name][number] for name in names}
        yield logged(int(epoch), metrics, row[_TIMES[1]][number])


def logged(step: int, metrics: Mapping[str, float | None], time: float | None) -> LoggedStep:
    """The metrics of a step at a time, in seconds since 1970."""
    finite = {name: value for name, value in metrics.items() if value is not None and math.isfinite(value)}
    return LoggedStep(step, finite, int((time if time and math.isfinite(time) else 0) * 1000))


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
    if (experiment := client.get_experiment_by_name(name)) is not None:
        return experiment
    return next(iter(client.search_experiments(filter_string=f"tags.`{SWEEP}` = '{name}'", max_results=1)), None)


def has_moved(experiment: Any, uri: str) -> bool:
    """Whether a sweep's artifacts are elsewhere than beside its database: it was copied or moved since.

    MLflow keeps absolute addresses, so those in a copy are of the original, where nothing may be written.
    """
    database, address = sqlite_file(uri), urlsplit(experiment.artifact_location)
    if database is None or address.scheme not in ("", "file") or SWEEP not in experiment.tags:
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
        file, tags = sqlite_file(uri), {SWEEP: name, **_PAGE}
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
            query = f"tags.`{ROLE}` = '{ROLE_SWEEP}'"
            parents = client.search_runs([self.experiment_id], query, order_by=["attributes.start_time ASC"])
            if not parents:
                raise TrackingError(f"experiment {name!r} in {uri} has no run of the sweep; see goal-sweep sync")
            self._artifacts, self._run = parents[0].info.artifact_uri, parents[0].info.run_id

    @property
    def run_address(self) -> str:
        """Where a training's run is shown, with ``{training}`` in the place of its key.

        That is on the tracking server or, for a database, where `goal-sweep ui` serves it.
        """
        server = self.uri.rstrip("/") if self.uri.startswith(("http://", "https://")) else LOCAL_PAGE
        found = quote(f"tags.`{STAGE_KEY}` = '{{training}}'", safe="{}")
        order = f"orderByKey={quote(_ORDER)}&orderByAsc=false"
        return f"{self._runs_at(server)}&{order}&searchFilter={found}"

    def address_at(self, server: str) -> str:
        """Where a server shows the runs of the sweep's trainings with their numbers, the best on val first."""
        return f"{self._runs_at(server)}&viewStateShareKey=goal"

    def _runs_at(self, server: str) -> str:
        return f"{server}/#/experiments/{self.experiment_id}/runs?workflowType=machine_learning"

    def attach_report(self, folder: Path, files: Sequence[str], verdict: Sequence[str] = ()) -> None:
        """Log a report as ``report/`` among the parent run's artifacts; afterwards this contains exactly these files.

        Args:
            files: relative to the folder, with forward slashes.
            verdict: lines for the run's description; without any, it stays.
        """
        with told("cannot attach the report"):
            repository = get_artifact_repository(self._artifacts, tracking_uri=self.uri)
            repository.delete_artifacts("report")
            for name in files:
                repository.log_artifact(str(folder / name), str(PurePosixPath("report", name).parent))
            if verdict:
                client: Any = MlflowClient(self.uri)
                client.set_tag(self._run, "mlflow.note.content", "\n".join(f"- {line}" for line in verdict))


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn the errors of MLflow and its artifact stores into one line."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise TrackingError(f"{what}: {first_line(error)[:300]}") from error
