"""Learning curves of a block's objectives (mean and range over seeds), and the cost of their epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from analysis.blocks import BLOCK_COLUMNS
from analysis.statistics.aggregation import counted

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns

CURVES: Final[dict[str, str]] = {
    "val/rsum": "val rsum",
    "train/pos_sim": "s_p (positive pairs)",
    "train/neg_sim": "s_n (hardest negatives)",
    "train/active": "active triplets",
    "train/grad_norm": "gradient norm",
}
"""The metrics of the learning curves and their labels; each is a row of the figure."""
WAIT: Final = "time/data_wait_share"
COSTS: Final = ("time/train_s", "time/val_s", "time/step_ms", WAIT)
"""The metrics from which costs are computed. Runs of earlier versions lack the last one."""
MAX_SEEDS = 10
"""The most seeds of a cell whose epochs are read: more would take minutes in a store of ten thousand runs and hardly
change a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric of one objective over the epochs."""

    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    """The smallest value among the seeds; with few seeds, a range needs no assumption about the distribution."""
    high: tuple[float, ...]
    """The largest value among the seeds."""


def drawn_runs(sweep: SweepRuns, max_seeds: int = MAX_SEEDS) -> pd.DataFrame:
    """The runs whose epochs are shown: those of the ``max_seeds`` lowest seeds of each cell that count."""
    runs = counted(sweep).sort_values("seed", kind="stable")
    places = [*(["point"] if sweep.axes else []), *(["grid"] if sweep.grids else [])]
    columns = [*BLOCK_COLUMNS, *places, "pair", "triplet"]
    return runs[runs.groupby(columns).cumcount() < max_seeds]


def seeds_note(sweep: SweepRuns, max_seeds: int = MAX_SEEDS) -> str:
    """A sentence on the seeds whose epochs are shown; empty if all are."""
    if len(sweep.seeds) <= max_seeds:
        return ""
    return f"Of each objective's {len(sweep.seeds)} seeds, the first {max_seeds} are shown."


def curves(runs: pd.DataFrame, history: pd.DataFrame, metric: str) -> dict[tuple[str, str], Curve]:
    """The curves of one block.

    Args:
        runs: the block's runs.
        history: from `analysis.tracking.fetch_history`; may contain other runs and metrics too.
        metric: the metric of the curves.

    Returns:
        By ``(pair, triplet)``; objectives without the metric are omitted.
    """
    points = history[history["metric"] == metric].merge(runs[["run_id", "pair", "triplet"]], on="run_id")
    found = {}
    for (pair, triplet), part in points.groupby(["pair", "triplet"]):
        by_epoch = part.groupby("step")["value"].agg(["mean", "min", "max"])
        found[str(pair), str(triplet)] = Curve(
            epochs=tuple(int(step) for step in by_epoch.index),
            mean=tuple(by_epoch["mean"]),
            low=tuple(by_epoch["min"]),
            high=tuple(by_epoch["max"]),
        )
    return found


def costs(runs: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """The training time of each objective of a block.

    Args:
        runs: the block's runs.
        history: with the metrics of `COSTS`.

    Returns:
        A row for each objective, in the order of ``runs``: ``pair``, ``triplet``, ``n`` (cells), ``epochs`` (mean),
        ``train_s`` and ``val_s`` (mean seconds of a cell's whole stage), ``train_s_std`` (ddof=1), ``step_ms`` (mean),
        ``data_wait`` (mean share of the steps' time that was waiting for data, in [0, 1]; NaN where no run says it).
        A cell of a shared unit is charged its own steps and its share of the work that the unit did for all cells.
    """
    rows = history[history["metric"].isin(COSTS)]
    wide = rows.pivot_table(index="run_id", columns="metric", values="value", aggfunc="sum").reindex(
        columns=list(COSTS)
    )
    steps = rows[rows["metric"] == "time/step_ms"].groupby("run_id")["value"].agg(["mean", "count"])
    waits = rows[rows["metric"] == WAIT].groupby("run_id")["value"].mean().rename("data_wait")
    each = runs[["run_id", "pair", "triplet"]].merge(steps, on="run_id").merge(wide, on="run_id")
    each = each.merge(waits, on="run_id", how="left")
    each = each.rename(columns={"mean": "step_mean", "count": "epochs"})
    found = each.groupby(["pair", "triplet"], sort=False).agg(
        n=("run_id", "size"),
        epochs=("epochs", "mean"),
        train_s=("time/train_s", "mean"),
        train_s_std=("time/train_s", "std"),
        val_s=("time/val_s", "mean"),
        step_ms=("step_mean", "mean"),
        data_wait=("data_wait", "mean"),
    )
    return found.reset_index()


def runs_without(runs: pd.DataFrame, history: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """The names of the runs that have none of the metrics."""
    seen = history.loc[history["metric"].isin(list(metrics)), "run_id"].unique()
    return [str(name) for name in runs[~runs["run_id"].isin(seen)]["run_name"]]
