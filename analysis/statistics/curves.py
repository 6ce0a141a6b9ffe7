"""Learning curves of a block's objectives (mean and range over seeds), and the cost of their epochs."""

from __future__ import annotations

from typing import Final

import pandas as pd

from analysis.blocks import BLOCK_COLUMNS, Objective
from analysis.results import SweepResults

CURVES: Final[dict[str, str]] = {
    "val/rsum": "val rsum",
    "train/pos_sim": "s_p (positive pairs)",
    "train/neg_sim": "s_n (hardest negatives)",
    "train/active": "active triplets",
    "train/grad_norm": "gradient norm",
}
"""The metrics of the learning curves and their labels; each is a row of the figure."""
_WAIT: Final = "time/data_wait_share"
COSTS: Final = ("time/train_s", "time/val_s", "time/step_ms", _WAIT)
"""The metrics from which costs are computed."""
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


def costs(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """The training time of each objective of a block.

    Args:
        runs: the block's trainings.
        epochs: with the metrics of `COSTS`.

    Returns:
        A row for each objective: ``pair``, ``triplet``, ``n`` (cells), ``epochs`` (mean), ``train_s`` and ``val_s``
        (mean seconds of a cell's whole stage), ``train_s_std`` (ddof=1), ``step_ms`` (mean), ``data_wait`` (mean share
        of the steps' time that was waiting for data, in [0, 1]; NaN where no training says it). A cell of a shared unit
        is charged its own steps and its share of the work that the unit did for all cells.
    """
    timed = epochs.dropna(subset=["time/step_ms"])
    each = timed.groupby("training").agg(
        epochs=("time/step_ms", "count"),
        train_s=("time/train_s", "sum"),
        val_s=("time/val_s", lambda seconds: seconds.sum(min_count=1)),
        step_ms=("time/step_ms", "mean"),
        data_wait=(_WAIT, "mean"),
    )
    by_objective = (
        runs[["training", "pair", "triplet"]].merge(each, on="training").groupby(["pair", "triplet"], sort=False)
    )
    means = by_objective[["epochs", "train_s", "val_s", "step_ms", "data_wait"]].mean()
    spread = by_objective["train_s"].std().rename("train_s_std")
    frame = pd.concat([by_objective.size().rename("n"), means, spread], axis=1).reset_index()
    order = ["pair", "triplet", "n", "epochs", "train_s", "train_s_std", "val_s", "step_ms", "data_wait"]
    return frame[order]
