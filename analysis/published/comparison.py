"""The paper's blocks as printed, and a sweep beside them: what can be said of each cell, and how alike the orders are.

The paper prints no single runs, so its seeds cannot be paired with a sweep's. Orders are only described.

Source: Xuan & Chen 2022, arXiv:2210.13188, tables as printed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from goal_sweep.analysis.blocks import ALPHA, BlockKey, BlockResults, CellSummary, Grid, Objective
from goal_sweep.goal_core.evaluation.metrics import METRICS, OBJECTIVES, Metric

NUM_RUNS = 3
"""The number of runs in each printed mean; the paper does not state their seeds."""
_WSL = ("wsl", "resnext101_32x8d.fb_wsl")
_FOLDER = Path(__file__).parent


def published_blocks() -> tuple[BlockResults, ...]:
    """The paper's blocks, in the order of its tables."""
    columns = ["dataset", "framework", "backbone", "stage"]
    blocks = []
    for values, frame in pd.read_csv(_FOLDER / "goal_grid.csv").groupby(columns, sort=False):
        key = BlockKey(**dict(zip(columns, map(str, values), strict=True)), variant="paper", data_fingerprint="")
        grids = {
            metric.key: _grid(metric, part)
            for metric in METRICS.values()
            if len(part := frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)])
        }
        blocks.append(BlockResults(key=key, protocol="", grids=grids))
    return tuple(blocks)


def published_key(key: BlockKey) -> tuple[str, str, str, str]:
    """Dataset, framework, backbone and stage of a block under their names in the published tables.

    The paper trains VSE-infinity in one stage, `train`, on the regions `butd` or the grid features `wsl`. Here that
    stage is `frozen` with precomputed regions, and `finetune` with the backbone that computes the grid features.
    """
    name = key.backbone.split(".")[0].replace("vit_base_patch16_224", "vit_base_patch16")
    if key.framework == "vse_infty":
        name = "butd" if name.startswith("butd") else "wsl" if key.backbone.startswith(_WSL) else name
        is_train = {"butd": "frozen", "wsl": "finetune"}.get(name) == key.stage
        return key.dataset, key.framework, name, "train" if is_train else key.stage
    return key.dataset, key.framework, name, key.stage


def _grid(metric: Metric, rows: pd.DataFrame) -> Grid:
    printed = {(str(row["pair"]), str(row["triplet"])): row for row in rows.to_dict("records")}
    numbers = {name: (float(printed[name]["mean"]), float(printed[name]["std"])) for name in OBJECTIVES}
    cells = {name: CellSummary(mean=mean, std=std, n=NUM_RUNS) for name, (mean, std) in numbers.items()}
    return Grid(metric=metric, cells=cells)


Words = Literal["equal", "not significant", "higher", "lower", "not tested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """A printed cell and a sweep's."""

    theirs: CellSummary
    ours: CellSummary
    p: float
    """Of Welch's t-test, corrected for the cells of the grid (Holm); NaN where a side has no deviation."""

    @property
    def change(self) -> float:
        """This sweep's mean minus the printed one, in points."""
        return (self.ours.mean or 0.0) - (self.theirs.mean or 0.0)

    @property
    def verdict(self) -> Words:
        """What can be said of it; ``equal`` means as printed."""
        if f"{self.ours.mean:.1f}" == f"{self.theirs.mean:.1f}":
            return "equal"
        if np.isnan(self.p):
            return "not tested"
        return "not significant" if self.p >= ALPHA else "higher" if self.change > 0 else "lower"


CellComparisons = dict[Objective, CellComparison]
"""Of one metric of a block, where the printed cell (a mean of 3 runs) and the sweep's both have a mean."""


def compare_blocks(
    ours: Iterable[BlockResults], theirs: Iterable[BlockResults]
) -> dict[tuple[BlockKey, Metric], CellComparisons]:
    """Compare each block with the published one of the same model; see :func:`published_key`.

    A block is compared whatever its variant, for the paper does not say which constants its tables have. Blocks and
    metrics without a counterpart are omitted.
    """
    published = {published_key(block.key): block.grids for block in theirs}
    made = {}
    for block in ours:
        for key, other in published.get(published_key(block.key), {}).items():
            if (grid := block.grids.get(key)) is None:
                continue
            if both := {name: (other.cells[name], grid.cells[name]) for name in other.means if name in grid.means}:
                made[block.key, grid.metric] = compare_cells(both)
    return made


def compare_cells(cells: Mapping[Objective, tuple[CellSummary, CellSummary]]) -> dict[Objective, CellComparison]:
    """Compare the printed cells of a grid with a sweep's, which all have a mean.

    Welch's t-test on means and deviations, with Holm's correction for the cells of the grid; for other seeds alone.
    """
    p = dict(zip(cells, holm([_welch(*both) for both in cells.values()]), strict=True))
    return {name: CellComparison(theirs=theirs, ours=ours, p=p[name]) for name, (theirs, ours) in cells.items()}


def _welch(theirs: CellSummary, ours: CellSummary) -> float:
    if theirs.std is None or ours.std is None or theirs.std == ours.std == 0:
        return np.nan
    sides = (ours.mean, ours.std, ours.n, theirs.mean, theirs.std, theirs.n)
    return float(stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue)


def holm(p: Iterable[float]) -> list[float]:
    """p-values corrected for their number; NaN, which is no test, stays.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    known = np.array(list(p), float)
    order = np.argsort(known)[: int((~np.isnan(known)).sum())]
    steps = np.arange(len(order), 0, -1)
    known[order] = np.minimum(np.maximum.accumulate(steps * known[order]), 1.0)
    return list(map(float, known))


def rank_correlation(ours: Grid, theirs: Grid) -> float | None:
    """Spearman's correlation of the means, -1 to 1, of the objectives that both have; not of rounded means.

    None with fewer than three objectives or with equal means on a side.
    """
    both = [name for name in ours.means if name in theirs.means]
    # Rounded far below what is measured, so that equal means remain equal despite rounding errors.
    sides = [[round(side.means[name], 9) for name in both] for side in (ours, theirs)]
    if len(both) < 3 or min(len(set(side)) for side in sides) < 2:
        return None
    return float(stats.spearmanr(*sides).statistic)


def order_agreement(block: BlockResults, printed: Iterable[BlockResults]) -> dict[tuple[BlockKey, Metric], float]:
    """How much a block orders the objectives as each printed grid does, whatever its model."""
    return {
        (other.key, grid.metric): rank
        for other in printed
        for key, grid in other.grids.items()
        if key in block.grids and (rank := rank_correlation(block.grids[key], grid)) is not None
    }
