"""Learning curves of a block's objectives: mean and range over seeds."""

from __future__ import annotations

from typing import Final

import pandas as pd

from goal_sweep.analysis.blocks import BLOCK_COLUMNS, Objective
from goal_sweep.analysis.results import SweepResults

CURVES: Final[dict[str, str]] = {
    "val/rsum": "val rsum",
    "train/pos_sim": "s_p (positive pairs)",
    "train/neg_sim": "s_n (hardest negatives)",
    "train/active": "active triplets",
    "train/grad_norm": "gradient norm",
}
"""The metrics of the learning curves and their labels; each is a row of the figure."""
MAX_SEEDS = 10
"""The most seeds of a cell whose epochs are shown: more hardly change a curve."""


def drawn_runs(results: SweepResults) -> pd.DataFrame:
    """The trainings whose epochs are shown: those of the lowest seeds of each cell that count."""
    runs = results.counted.sort_values("seed", kind="stable")
    columns = [*BLOCK_COLUMNS, "point", "grid", "pair", "triplet"]
    return runs[runs.groupby(columns).cumcount() < MAX_SEEDS]


def curves(runs: pd.DataFrame, epochs: pd.DataFrame, metric: str) -> dict[Objective, pd.DataFrame]:
    """The curves of one block by objective; objectives without the metric are omitted.

    Args:
        runs: the block's trainings.
        epochs: from `SweepResults.epochs`; may contain other trainings and metrics too.
        metric: the metric of the curves.

    Returns:
        A row for each epoch with ``epoch``, ``mean``, ``min`` and ``max`` over the seeds: with few seeds, a range needs
        no assumption about the distribution.
    """
    points = epochs[["training", "epoch", metric]].dropna().merge(runs[["training", "pair", "triplet"]], on="training")
    of_epochs = points.groupby(["pair", "triplet", "epoch"])[metric].agg(["mean", "min", "max"]).reset_index("epoch")
    return {(str(pair), str(triplet)): own for (pair, triplet), own in of_epochs.groupby(level=["pair", "triplet"])}
