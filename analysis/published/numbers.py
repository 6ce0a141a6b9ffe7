"""The paper's blocks as printed, and the comparison of a sweep with them by cell and by rank.

Source: Xuan & Chen 2022, arXiv:2210.13188, tables as printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from scipy import stats

from analysis.blocks import Block, BlockKey, CellSummary, Grid, Objective
from analysis.published.verdicts import CellComparison, CellVerdict, judge
from analysis.statistics.comparison import compare_printed
from sweeps.results import METRICS, OBJECTIVES, Metric

NUM_RUNS = 3
"""The number of runs in each printed mean; the paper does not state their seeds."""
_FOLDER = Path(__file__).parent
# These three grids are printed with the middle of the scale at the median; the other 17 are linear.
_MEDIAN_MIDPOINT = {
    ("coco", "vsepp", "resnet152", "finetune", "i2t"),
    ("f30k", "vse_infty", "butd", "train", "i2t"),
    ("f30k", "vse_infty", "butd", "train", "t2i"),
}
_PROTOCOL = (
    f"Mean ± standard deviation over {NUM_RUNS} runs, as printed by Xuan & Chen 2022 (arXiv:2210.13188). "
    "Test split. Seeds, selection rule and data fingerprint are not stated there."
)
_BRIEF = f"mean ± std of {NUM_RUNS} runs as printed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridComparison:
    """One metric of a block of a sweep, compared with the published one."""

    block: Block
    metric: Metric
    cells: Mapping[Objective, CellComparison]
    """By ``(pair, triplet)``, where the sweep's cell and the printed one (a mean of 3 runs) both have a mean."""
    spearman: float | None
    """Rank correlation over these cells, -1 to 1, of the printed means and the sweep's as measured, not rounded; None
    with fewer than 3 cells or a constant side."""
    kendall: float | None
    """Kendall's tau-b of the same."""
    mean_difference: float
    """Mean of the sweep's minus the published values, in points."""

    def count(self, *verdicts: CellVerdict) -> int:
        """The number of cells with one of these verdicts."""
        return sum(cell.verdict in verdicts for cell in self.cells.values())

    @property
    def num_within(self) -> int:
        """The number of cells within both spreads, including those that are equal as printed."""
        return self.count("equal", "within both spreads")


def published_blocks() -> tuple[Block, ...]:
    """The paper's blocks, in the order of its tables."""
    columns = ["dataset", "framework", "backbone", "stage"]
    blocks = []
    for values, frame in pd.read_csv(_FOLDER / "goal_grid.csv").groupby(columns, sort=False):
        words = dict(zip(columns, map(str, values), strict=True))
        key = BlockKey(**words, variant="paper", data_fingerprint="")
        grids = {
            metric.key: _grid(metric, part, (*words.values(), metric.direction) in _MEDIAN_MIDPOINT)
            for metric in METRICS.values()
            if len(part := frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)])
        }
        blocks.append(Block(key=key, slug=key.slug, protocol=_PROTOCOL, grids=grids, brief=_BRIEF))
    return tuple(blocks)


def gradient_numbers() -> pd.DataFrame:
    """The triplet loss beside the same objective as a gradient, as text; entries that the paper omits are empty."""
    return pd.read_csv(_FOLDER / "gradient_validation.csv", dtype=str, keep_default_na=False)


def compare_blocks(ours: Iterable[Block], theirs: Iterable[Block]) -> tuple[GridComparison, ...]:
    """Compare each block with the published one of the same model; see :func:`published_key`.

    A block is compared whatever its variant, for the paper does not say which constants its tables have. Blocks and
    metrics without a counterpart are omitted.
    """
    published = {published_key(block.key): block for block in theirs}
    return tuple(
        comparison
        for block in ours
        if (other := published.get(published_key(block.key))) is not None
        for key, grid in block.grids.items()
        if key in other.grids and (comparison := _compare(block, grid, other.grids[key])) is not None
    )


def published_key(key: BlockKey) -> tuple[str, str, str, str]:
    """Dataset, framework, backbone and stage of a block under their names in the published tables.

    The paper trains VSE-infinity in one stage, `train`, on the regions `butd` or the grid features `wsl`. Here that
    stage is `frozen` with precomputed regions, and `finetune` with the backbone that computes the grid features.
    """
    ours = {"butd": "frozen", "wsl": "finetune"}
    is_train = key.framework == "vse_infty" and ours.get(key.paper_backbone) == key.stage
    return key.dataset, key.framework, key.paper_backbone, "train" if is_train else key.stage


def _grid(metric: Metric, rows: pd.DataFrame, median_midpoint: bool) -> Grid:
    printed = {(str(row["pair"]), str(row["triplet"])): row for row in rows.to_dict("records")}
    cells = {
        objective: CellSummary(mean=float(printed[objective]["mean"]), std=float(printed[objective]["std"]), n=NUM_RUNS)
        for objective in OBJECTIVES
    }
    comparison = compare_printed({key: (cell.mean or 0.0, cell.std or 0.0) for key, cell in cells.items()}, NUM_RUNS)
    return Grid(metric=metric, cells=cells, comparison=comparison, median_midpoint=median_midpoint)


def _compare(block: Block, ours: Grid, theirs: Grid) -> GridComparison | None:
    mine, printed = ours.means, theirs.means
    means = {key: (mine[key], printed[key]) for key in mine if key in printed}
    if not means:
        return None
    # Rounded far below what is measured, so that equal means remain equal despite rounding errors.
    a, b = ([round(mean, 9) for mean in side] for side in zip(*means.values(), strict=True))
    ranked = len(means) >= 3 and len(set(a)) > 1 and len(set(b)) > 1
    return GridComparison(
        block=block,
        metric=ours.metric,
        cells=judge({key: (ours.cells[key], theirs.cells[key]) for key in means}),
        spearman=float(stats.spearmanr(a, b).statistic) if ranked else None,
        kendall=float(stats.kendalltau(a, b).statistic) if ranked else None,
        mean_difference=sum(a) / len(a) - sum(b) / len(b),
    )
