"""What goal-sweep adds to MLflow's page: descriptions, saved views, the report's files and links to runs."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from analysis import run_schema as schema
from analysis.blocks import Block, Grid, number_text
from analysis.errors import AnalysisError, first_line
from analysis.tracking.places import artifact_place

LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking database that is a file."""
_NOTE = "mlflow.note.content"
_NOTE_HASH = "goal.note"
"""Hash of the last description written here: a description edited by a user is left alone."""
_VIEW = "mlflow.sharedViewState."
_KIND, _KIND_OF_TRAINING = "mlflow.experimentKind", "custom_model_development"
"""MLflow's page would show an experiment of another kind as traces of language models."""
_SHOWN = sorted(schema.MAIN_METRICS, key=lambda metric: metric is not schema.RSUM)
_MAX_EXPERIMENT_NOTE, _MAX_RUN_NOTE = 4800, 7800
"""Characters; MLflow rejects more than 5,000 and 8,000."""
_SETTINGS = ("epochs", "lr", "batch_size")


def run_url(tracking_uri: str, experiment_id: str, run_id: str) -> str:
    """The address of a run in MLflow: on the tracking server or, for a database, where `goal-sweep ui` serves it."""
    page = tracking_uri.rstrip("/") if tracking_uri.startswith(("http://", "https://")) else LOCAL_PAGE
    return f"{page}/#/experiments/{experiment_id}/runs/{run_id}"


def attach_files(tracking_uri: str, run_id: str, folder: Path, names: Sequence[str], target: str) -> tuple[str, ...]:
    """Log files as artifacts of a run, replacing those in the target folder.

    New files are logged before stale ones are removed, so the run always has a report.

    Args:
        tracking_uri: MLflow tracking URI.
        run_id: the run.
        folder: where the files are.
        names: the files, relative to it, with forward slashes.
        target: the artifact folder; afterwards it contains exactly these files.

    Returns:
        The files' artifact paths.

    Raises:
        AnalysisError: a file cannot be logged.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        address = artifact_place(tracking_uri, client.get_run(run_id).info.artifact_uri)
        repository = get_artifact_repository(address, tracking_uri=tracking_uri)
        before = _artifacts(repository, target)
        for name in names:
            repository.log_artifact(str(folder / name), str(PurePosixPath(target, name).parent))
        attached = tuple(str(PurePosixPath(target, name)) for name in names)
        for path in sorted(set(before) - set(attached)):
            repository.delete_artifacts(path)
    except (MlflowException, OSError) as error:
        raise AnalysisError(f"cannot attach the report to run {run_id}: {first_line(error)}") from error
    return attached


def _artifacts(repository: Any, folder: str) -> list[str]:
    found: list[str] = []
    for item in repository.list_artifacts(folder):
        found += _artifacts(repository, item.path) if item.is_dir else [item.path]
    return found


def publish_summary(
    tracking_uri: str, parent_run_id: str, name: str, blocks: Sequence[Block], notes: Sequence[str] = ()
) -> None:
    """Describe a sweep in MLflow: its parent run in full, its experiment in a line for each block, and saved views.

    A description that a user has edited is left alone.

    Args:
        tracking_uri: MLflow tracking URI.
        parent_run_id: the sweep's parent run.
        name: the sweep's name.
        blocks: its blocks.
        notes: what a reader must know of the numbers before reading them, a sentence or two each.

    Raises:
        AnalysisError: tracking cannot be written.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        parent = client.get_run(parent_run_id)
        experiment = client.get_experiment(parent.info.experiment_id)
        home, tags = experiment.experiment_id, experiment.tags
        short = _joined([f"**{name}**", *notes, *(_headline(block, home) for block in blocks)], _MAX_EXPERIMENT_NOTE)
        rankings = [f"**{block.key.title}**\n\n{_ranking(block)}" for block in blocks if not block.is_empty]
        full = _joined([short, *rankings], _MAX_RUN_NOTE)
        _save_views(client, home, tags, blocks)
        if _may_write(tags, short):
            client.set_experiment_tag(home, _NOTE, short)
            client.set_experiment_tag(home, _NOTE_HASH, _hash(short))
        if _may_write(parent.data.tags, full):
            client.set_tag(parent_run_id, _NOTE, full)
            client.set_tag(parent_run_id, _NOTE_HASH, _hash(full))
    except MlflowException as error:
        raise AnalysisError(f"cannot describe run {parent_run_id}: {first_line(error)}") from error


def publish_views(tracking_uri: str, experiment_id: str, blocks: Sequence[Block]) -> None:
    """Save a view of each block, which opens at `view_address`: its runs by objective, ordered by rsum.

    Args:
        tracking_uri: MLflow tracking URI.
        experiment_id: the sweep's experiment.
        blocks: the sweep's blocks.

    Raises:
        AnalysisError: tracking cannot be written.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        _save_views(client, experiment_id, client.get_experiment(experiment_id).tags, blocks)
    except MlflowException as error:
        raise AnalysisError(f"cannot save views in experiment {experiment_id}: {first_line(error)}") from error


def _save_views(client: Any, experiment_id: str, tags: Mapping[str, str], blocks: Sequence[Block]) -> None:
    wanted = {f"{_VIEW}{_view_key(block)}": _view(block) for block in blocks}
    for tag, text in (wanted | {_KIND: tags.get(_KIND, _KIND_OF_TRAINING)}).items():
        if tags.get(tag) != text:
            client.set_experiment_tag(experiment_id, tag, text)


def view_address(block: Block, experiment_id: str) -> str:
    """Where MLflow's page shows the view of a block, without the server's address."""
    of_training = "workflowType=machine_learning"  # or else the page shows traces of language models
    return f"/#/experiments/{experiment_id}/runs?{of_training}&viewStateShareKey={_view_key(block)}"


def headline(block: Block) -> str:
    """Which objective has the highest rsum and by how much, with a caution where the seeds do not support it."""
    grid = block.grids[schema.RSUM.key]
    cells = grid.cells
    known = {key: cell for key, cell in cells.items() if cell.mean is not None}
    if not known:
        return f"nothing finished; {len(block.gaps)} missing"
    best = max(known, key=lambda key: known[key].mean or 0.0)
    text = f"highest rsum **{'/'.join(best)}** {number_text(known[best])}"
    base = known.get(schema.BASELINE)
    if base is not None and best != schema.BASELINE:
        text += f", {(known[best].mean or 0) - (base.mean or 0):+.1f} over con/con {number_text(base)}"
        text += _caution(grid)
    missing = f"; {len(block.gaps)} of {len(block.gaps) + sum(c.n for c in cells.values())} trainings missing"
    return text + (missing if block.gaps else "")


def _caution(grid: Grid) -> str:
    """What the one rule of the report says of the gain."""
    if grid.gain is None or grid.gain.low is None:
        return " (too few seeds to know the spread)"
    return "" if grid.gain.told_apart else " (within noise)"


def _joined(parts: Sequence[str], limit: int) -> str:
    """As many paragraphs as fit, as one text; the number of the others is stated."""
    text = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        more = f"\n\n{len(parts) - number} more in the report among the run's artifacts."
        if len(text) + 2 + len(part) + len(more) > limit:
            return text + more
        text += f"\n\n{part}"
    return text


def _headline(block: Block, experiment_id: str) -> str:
    link = f"[runs by objective]({view_address(block, experiment_id).removeprefix('/')})"
    return f"{block.key.title}: {headline(block)} ({link})"


def _ranking(block: Block) -> str:
    grids = [block.grids[metric.key] for metric in _SHOWN]
    order = sorted(grids[0].cells, key=lambda key: -(grids[0].cells[key].mean or -1.0))
    rows = ["| rank | objective | rsum | image to text R@1 | text to image R@1 | n |"]
    rows.append("| ---: | :--- | ---: | ---: | ---: | ---: |")
    for rank, key in enumerate(order, start=1):
        cells = [grid.cells[key] for grid in grids]
        if cells[0].requested:
            numbers = " | ".join(number_text(cell) for cell in cells)
            rows.append(f"| {rank if cells[0].n else '--'} | {'/'.join(key)} | {numbers} | {cells[0].n} |")
    return "\n".join(rows)


def _may_write(tags: dict[str, str], text: str) -> bool:
    now = tags.get(_NOTE)
    return now != text and (now is None or tags.get(_NOTE_HASH) == _hash(now))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view_key(block: Block) -> str:
    return f"goal-{block.slug}"


def _view(block: Block) -> str:
    """A saved view as MLflow's page stores one: its state as JSON, deflated."""
    key, cells = block.key, block.grids[schema.RSUM.key].cells
    wanted = {schema.TAG_ROLE: schema.ROLE_CELL, schema.TAG_STAGE: key.stage}
    wanted |= {schema.TAG_BACKBONE: key.backbone, schema.TAG_DATASET: key.dataset}
    filters = [f"tags.`{tag}` = '{value}'" for tag, value in wanted.items()]
    filters += [f"tags.`{schema.TAG_GRID}` LIKE '%{key.grid}%'"] if key.grid else []  # grids are never averaged
    columns = [f"metrics.`{metric.test}`" for metric in _SHOWN]
    columns += [f"tags.`{tag}`" for tag in (schema.TAG_STATUS, schema.TAG_SETTINGS_KEY)]
    columns += ["params.`seed`", *(f"params.`stages.{key.stage}.{name}`" for name in _SETTINGS)]
    groups = [schema.TAG_OBJECTIVE, *([schema.TAG_POINT] if key.point else [])]  # points are never averaged
    best = max(cells, key=lambda objective: cells[objective].mean or -1.0, default=None)
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
            "groupByKeys": [{"mode": "tag", "groupByData": tag} for tag in groups],
        },
        # Only the best group shows its runs, so that the ranking fits a screen.
        "groupsExpanded": {f"tag.{schema.TAG_OBJECTIVE}.{'/'.join(name)}": name == best for name in cells},
    }
    packed = zlib.compress(json.dumps(state, sort_keys=True).encode())
    return f"deflate;{base64.b64encode(packed).decode('ascii')}"
