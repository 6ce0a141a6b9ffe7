"""The answer where people look first: descriptions and saved views in MLflow, so that its page needs no report."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from analysis.errors import AnalysisError
from analysis.statistics.aggregate import aggregate
from analysis.tracking import run_schema as schema
from analysis.tracking.blocks import Block, CellSummary, number_text
from analysis.tracking.fetch import fetch_runs

_NOTE = "mlflow.note.content"
_OURS = "goal.note"
"""Hash of the description that was written last: one that somebody changed is theirs, and stays."""
_VIEW = "mlflow.sharedViewState."
_SHOWN: tuple[tuple[str, str], ...] = (schema.RSUM, ("i2t", "R@1"), ("t2i", "R@1"))
_MAX_EXPERIMENT_NOTE, _MAX_RUN_NOTE = 4800, 7800
"""Characters; MLflow refuses more than 5,000 and 8,000."""
_SETTINGS = ("epochs", "lr", "batch_size")


def publish_summary(tracking_uri: str, parent_run_id: str, name: str, blocks: Sequence[Block]) -> None:
    """Describe a sweep in MLflow: its parent run in full, its experiment in a line for each block, and saved views.

    A view for each block, at ``#/experiments/ID/runs?viewStateShareKey=goal-BLOCK``, groups its runs by objective,
    orders them by rsum and shows recalls and settings. A description that a person changed is left alone.

    Args:
        tracking_uri: MLflow tracking URI.
        parent_run_id: the sweep's parent run.
        name: the sweep's name.
        blocks: its blocks.

    Raises:
        AnalysisError: tracking refuses it.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        parent = client.get_run(parent_run_id)
        experiment = client.get_experiment(parent.info.experiment_id)
        home, tags = experiment.experiment_id, experiment.tags
        short = _joined([f"**{name}**", *(_headline(block, home) for block in blocks)], _MAX_EXPERIMENT_NOTE)
        rankings = [f"**{block.key.title}**\n\n{_ranking(block)}" for block in blocks if not block.is_empty]
        full = _joined([short, *rankings], _MAX_RUN_NOTE)
        for block in blocks:
            view = _view(block)
            if tags.get(_view_tag(block)) != view:
                client.set_experiment_tag(home, _view_tag(block), view)
        if _may_write(tags, short):
            client.set_experiment_tag(home, _NOTE, short)
            client.set_experiment_tag(home, _OURS, _hash(short))
        if _may_write(parent.data.tags, full):
            client.set_tag(parent_run_id, _NOTE, full)
            client.set_tag(parent_run_id, _OURS, _hash(full))
    except MlflowException as error:
        raise AnalysisError(f"cannot describe run {parent_run_id}: {str(error).splitlines()[0]}") from error


def refresh_summary(tracking_uri: str, name: str) -> str | None:
    """As `publish_summary`, from what tracking holds of a sweep; nothing where it has no parent run.

    Returns:
        The parent run's id, or None.

    Raises:
        AnalysisError: tracking holds no run of the sweep, or refuses.
    """
    sweep = fetch_runs(tracking_uri, name)
    if sweep.parent_run_id is not None:
        publish_summary(tracking_uri, sweep.parent_run_id, name, aggregate(sweep))
    return sweep.parent_run_id


def headline(block: Block) -> str:
    """Which objective has the highest rsum, and by how much, claiming no more than the seeds hold."""
    cells = block.grids[schema.RSUM].cells
    known = {key: cell for key, cell in cells.items() if cell.mean is not None}
    if not known:
        return f"nothing finished; {len(block.gaps)} missing"
    best = max(known, key=lambda key: known[key].mean or 0.0)
    text = f"highest rsum **{'/'.join(best)}** {number_text(known[best])}"
    base = known.get(schema.BASELINE)
    if base is not None and best != schema.BASELINE:
        text += f", {(known[best].mean or 0) - (base.mean or 0):+.1f} over con/con {number_text(base)}"
        text += _caution(known[best], base)
    missing = f"; {len(block.gaps)} of {len(block.gaps) + sum(c.n for c in cells.values())} trainings missing"
    return text + (missing if block.gaps else "")


def _caution(best: CellSummary, base: CellSummary) -> str:
    if best.std is None or base.std is None:
        return " (too few seeds to know the spread)"
    within = (best.mean or 0) - (base.mean or 0) <= best.std + base.std
    return " (within the spread of the seeds)" if within else ""


def _joined(parts: Sequence[str], limit: int) -> str:
    """Paragraphs as one text, as many as fit; the rest is counted."""
    text = parts[0]
    for place, part in enumerate(parts[1:], start=1):
        more = f"\n\n{len(parts) - place} more in the report among the run's artifacts."
        if len(text) + 2 + len(part) + len(more) > limit:
            return text + more
        text += f"\n\n{part}"
    return text


def _headline(block: Block, experiment_id: str) -> str:
    link = f"[runs by objective](#/experiments/{experiment_id}/runs?viewStateShareKey={_view_key(block)})"
    return f"{block.key.title}: {headline(block)} ({link})"


def _ranking(block: Block) -> str:
    grids = [block.grids[shown] for shown in _SHOWN]
    order = sorted(grids[0].cells, key=lambda key: -(grids[0].cells[key].mean or -1.0))
    rows = ["| rank | objective | rsum | image to text R@1 | text to image R@1 | n |"]
    rows.append("| ---: | :--- | ---: | ---: | ---: | ---: |")
    for rank, key in enumerate(order, start=1):
        cells = [grid.cells[key] for grid in grids]
        if cells[0].asked:
            numbers = " | ".join(number_text(cell) for cell in cells)
            rows.append(f"| {rank if cells[0].n else '--'} | {'/'.join(key)} | {numbers} | {cells[0].n} |")
    return "\n".join(rows)


def _may_write(tags: dict[str, str], text: str) -> bool:
    now = tags.get(_NOTE)
    return now != text and (now is None or tags.get(_OURS) == _hash(now))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view_key(block: Block) -> str:
    return f"goal-{block.slug}"


def _view_tag(block: Block) -> str:
    return f"{_VIEW}{_view_key(block)}"


def _view(block: Block) -> str:
    """A saved view as MLflow's page stores one: its state as JSON, deflated."""
    key = block.key
    wanted = {schema.TAG_STAGE: key.stage, schema.TAG_BACKBONE: key.backbone, schema.TAG_DATASET: key.dataset}
    columns = [f"metrics.`{schema.metric_key(*shown)}`" for shown in _SHOWN]
    columns += [f"tags.`{tag}`" for tag in (schema.TAG_STATUS, schema.TAG_SETTINGS_KEY)]
    columns += ["params.`seed`", *(f"params.`stages.{key.stage}.{name}`" for name in _SETTINGS)]
    state = {
        "searchFilter": _and([(schema.TAG_ROLE, schema.ROLE_CELL), *wanted.items()]),
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
            "groupByKeys": [{"mode": "tag", "groupByData": schema.TAG_OBJECTIVE}],
        },
    }
    packed = zlib.compress(json.dumps(state, sort_keys=True).encode())
    return f"deflate;{base64.b64encode(packed).decode('ascii')}"


def _and(conditions: Iterable[tuple[str, str]]) -> str:
    return " AND ".join(f"tags.`{tag}` = '{value}'" for tag, value in conditions)
