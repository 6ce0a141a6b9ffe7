"""What MLflow's page needs to be useful: a link to the runs of each block, and the best cells as models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis import run_schema as schema
from analysis.blocks import Block
from analysis.errors import NoRunsError
from analysis.statistics import aggregate, counted, of_block
from analysis.tracking import SweepRuns, fetch_runs
from analysis.tracking.mlflow_page import headline, publish_views, view_address


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLink:
    """A block and where MLflow's page shows its runs."""

    title: str
    headline: str
    """Which objective is best, in plain text."""
    address: str
    """The part of the URL after the server's address: ``/#/experiments/...``."""


def block_links(tracking_uri: str, name: str) -> tuple[BlockLink, ...]:
    """Save a view of each block in MLflow, and link to it.

    Args:
        tracking_uri: MLflow tracking URI, which must be writable.
        name: the sweep's name.

    Returns:
        A link for each block, in the order of the report.

    Raises:
        AnalysisError: tracking cannot be read or written, or has no run of the sweep.
    """
    sweep = fetch_runs(tracking_uri, name)
    if sweep.runs.empty:
        raise NoRunsError(f"sweep {name!r} is still tuning; it has no reporting cell yet")
    blocks, experiment_id = aggregate(sweep), str(sweep.runs["experiment_id"].iloc[0])
    publish_views(tracking_uri, experiment_id, blocks)
    return tuple(
        BlockLink(
            title=block.key.title,
            headline=headline(block).replace("**", ""),
            address=view_address(block, experiment_id),
        )
        for block in blocks
    )


def best_runs(sweep: SweepRuns, blocks: Sequence[Block]) -> tuple[str, ...]:
    """The runs of each block's objective with the highest mean rsum, all its seeds."""
    runs, found = counted(sweep), []
    for block in blocks:
        cells = {name: cell for name, cell in block.grids[schema.RSUM.key].cells.items() if cell.mean is not None}
        if cells:
            pair, triplet = max(cells, key=lambda name: cells[name].mean or 0.0)
            rows = of_block(runs, block.key)
            found += list(rows[(rows["pair"] == pair) & (rows["triplet"] == triplet)].sort_values("seed")["run_id"])
    return tuple(dict.fromkeys(map(str, found)))  # one training may be in both grids of a tuned sweep
