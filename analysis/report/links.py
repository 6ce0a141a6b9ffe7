"""Links into MLflow's page: the training runs of each block, grouped by objective, the highest first."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.statistics import aggregate
from analysis.tracking import fetch_runs
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
