"""What goal-sweep adds to MLflow's page beside runs: descriptions, saved views, the report's files, and the best cells.

Also reads the one thing that is read back: the results table of a sweep whose results folder is not at hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from goal_core.basics.errors import first_line
from runners.tracking import schema as names
from runners.tracking.uri import TrackingError, require_database
from sweeps.results import MAIN_METRICS, RESULTS_FILE, RSUM

LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking database that is a file."""
_NOTE = "mlflow.note.content"
_NOTE_HASH = "goal.note"
"""Hash of the last description written here: a description edited by a user is left alone."""
_VIEW = "mlflow.sharedViewState."
_KIND, _KIND_OF_TRAINING = "mlflow.experimentKind", "custom_model_development"
"""MLflow's page would show an experiment of another kind as traces of language models."""
_MAX_EXPERIMENT_NOTE, _MAX_RUN_NOTE = 4800, 7800
"""Characters; MLflow rejects more than 5,000 and 8,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOnPage:
    """A block of the report, as MLflow's page shows it."""

    slug: str
    title: str
    headline: str
    """Which objective is best, in a line of Markdown."""
    ranking: str
    """Its objectives as a Markdown table; empty without a number."""
    tags: Mapping[str, str]
    """Tags of all its runs."""
    grid: str
    """``default`` or ``tuned``; empty for a sweep that does not tune."""
    groups: tuple[str, ...]
    """Tags whose values are averaged apart."""
    open_group: str
    """The objective whose runs are shown one by one."""
    objectives: tuple[str, ...]

    @property
    def view(self) -> str:
        """The name of its saved view."""
        return f"goal-{self.slug}"

    def address(self, experiment_id: str) -> str:
        """Where MLflow's page shows the view, without the server's address."""
        of_training = "workflowType=machine_learning"  # or else the page shows traces of language models
        return f"/#/experiments/{experiment_id}/runs?{of_training}&viewStateShareKey={self.view}"


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
        self.uri, self._name = uri, name
        with _told(f"cannot read tracking at {uri}"):
            self.client: Any = MlflowClient(tracking_uri=uri)
            experiment = find_experiment(self.client, name)
            if experiment is None or experiment.lifecycle_stage == "deleted":
                raise TrackingError(f"no experiment {name!r} in {uri}; goal-sweep sync writes it from the results")
            self.experiment_id, self._tags = str(experiment.experiment_id), experiment.tags
            query = f"tags.`{names.ROLE}` = '{names.ROLE_SWEEP}'"
            parents = self.client.search_runs([self.experiment_id], query, order_by=["attributes.start_time ASC"])
            if not parents:
                raise TrackingError(f"experiment {name!r} in {uri} has no run of the sweep; see goal-sweep sync")
            self.parent = parents[0]

    @property
    def address(self) -> str:
        """The experiment's page: on the tracking server or, for a database, where `goal-sweep ui` serves it."""
        server = self.uri.rstrip("/") if self.uri.startswith(("http://", "https://")) else LOCAL_PAGE
        return f"{server}/#/experiments/{self.experiment_id}"

    def results_table(self) -> bytes:
        """The sweep's results table among the parent run's artifacts.

        Raises:
            TrackingError: there is none, or it cannot be read.
        """
        with _told(f"{self.uri} has no {RESULTS_FILE} of sweep {self._name!r}"), TemporaryDirectory() as folder:
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

    def describe(self, blocks: Sequence[BlockOnPage], notes: Sequence[str] = ()) -> None:
        """Describe the sweep: its parent run in full, its experiment in a line for each block, and saved views.

        A description that a user has edited is left alone.

        Args:
            blocks: its blocks.
            notes: what a reader must know of the numbers before reading them, a sentence or two each.

        Raises:
            TrackingError: tracking cannot be written.
        """
        lines = [
            f"{block.title}: {block.headline} ([runs by objective]({block.address(self.experiment_id)[1:]}))"
            for block in blocks
        ]
        short = _joined([f"**{self._name}**", *notes, *lines], _MAX_EXPERIMENT_NOTE)
        rankings = [f"**{block.title}**\n\n{block.ranking}" for block in blocks if block.ranking]
        full = _joined([short, *rankings], _MAX_RUN_NOTE)
        self.save_views(blocks)
        with _told("cannot describe the sweep"):
            if _may_write(self._tags, short):
                self.client.set_experiment_tag(self.experiment_id, _NOTE, short)
                self.client.set_experiment_tag(self.experiment_id, _NOTE_HASH, _hash(short))
            if _may_write(self.parent.data.tags, full):
                self.client.set_tag(self.parent.info.run_id, _NOTE, full)
                self.client.set_tag(self.parent.info.run_id, _NOTE_HASH, _hash(full))

    def save_views(self, blocks: Sequence[BlockOnPage]) -> None:
        """Save a view of each block, which opens at its address: its runs by objective, ordered by rsum.

        Raises:
            TrackingError: tracking cannot be written.
        """
        wanted = {f"{_VIEW}{block.view}": _view(block) for block in blocks}
        with _told("cannot save views"):
            for tag, text in (wanted | {_KIND: self._tags.get(_KIND, _KIND_OF_TRAINING)}).items():
                if self._tags.get(tag) != text:
                    self.client.set_experiment_tag(self.experiment_id, tag, text)


def find_experiment(client: Any, name: str) -> Any:
    """A sweep's experiment, by its name or, where a user renamed it, by its tag; None without one."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        tagged = client.search_experiments(filter_string=f"tags.`{names.SWEEP}` = '{name}'", max_results=1)
        experiment = tagged[0] if tagged else None
    return experiment


@contextmanager
def _told(what: str) -> Any:
    """Turn the errors of MLflow and its artifact stores into one line."""
    try:
        yield
    except TrackingError:
        raise
    except (MlflowException, OSError) as error:
        raise TrackingError(f"{what}: {first_line(error)[:300]}") from error


def _artifacts(repository: Any, folder: str) -> list[str]:
    items = repository.list_artifacts(folder)
    below = [path for item in items if item.is_dir for path in _artifacts(repository, item.path)]
    return [item.path for item in items if not item.is_dir] + below


def _joined(parts: Sequence[str], limit: int) -> str:
    """As many paragraphs as fit, as one text; the number of the others is stated."""
    text = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        more = f"\n\n{len(parts) - number} more in the report among the run's artifacts."
        if len(text) + 2 + len(part) + len(more) > limit:
            return text + more
        text += f"\n\n{part}"
    return text


def _may_write(tags: Mapping[str, str], text: str) -> bool:
    now = tags.get(_NOTE)
    return now != text and (now is None or tags.get(_NOTE_HASH) == _hash(now))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view(block: BlockOnPage) -> str:
    """A saved view as MLflow's page stores one: its state as JSON, deflated."""
    filters = [f"tags.`{tag}` = '{value}'" for tag, value in block.tags.items()]
    filters += [f"tags.`{names.GRID}` LIKE '%{block.grid}%'"] if block.grid else []  # grids are never averaged
    metrics = sorted(MAIN_METRICS, key=lambda metric: metric is not RSUM)
    columns = [*(f"metrics.`{metric.test}`" for metric in metrics), f"tags.`{names.STATUS}`", "params.`seed`"]
    stage = block.tags[names.STAGE]
    columns += [f"params.`stages.{stage}.{setting}`" for setting in ("epochs", "lr", "batch_size")]
    state = {
        "searchFilter": " AND ".join(filters),
        "orderByKey": columns[0],
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "viewMaximized": True,
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": tag} for tag in block.groups],
        },
        # Only the best group shows its runs, so that the ranking fits a screen.
        "groupsExpanded": {f"tag.{names.OBJECTIVE}.{name}": name == block.open_group for name in block.objectives},
    }
    packed = zlib.compress(json.dumps(state, sort_keys=True).encode())
    return f"deflate;{base64.b64encode(packed).decode('ascii')}"
