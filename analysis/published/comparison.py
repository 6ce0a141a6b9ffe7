"""A sweep beside the paper: what can be said of each cell, and how alike the objectives are ordered.

The paper prints no single runs, so its seeds cannot be paired with a sweep's. Orders are only described: another
dataset, model or number of epochs may give another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Final, Literal

import numpy as np
from scipy import stats

from goal_sweep.analysis.blocks import Block, BlockKey, CellSummary, Grid, Objective, Verdict
from goal_sweep.analysis.published.numbers import published_key
from goal_sweep.analysis.statistics.comparison import difference_of
from goal_sweep.analysis.statistics.gains import Gain
from goal_sweep.analysis.statistics.spread import Array, judge
from goal_sweep.sweeps.results import PAIRS, TRIPLETS, Metric

Words = Literal["equal", "within noise", "higher", "lower", "not judged"]
_WORDS: Final[Mapping[Verdict, Words]] = {
    "level": "within noise",
    "better": "higher",
    "worse": "lower",
    "unknown": "not judged",
}
_USED_OF_TWO, _USED_LATER = 0.1, 0.2
"""The share of 5 % that cells of equal spread use, where one has two runs and where all have more; fewer than paired
ones: what a seed does to all is noise here."""


def verdict_of(cell: Gain) -> Words:
    """What can be said of a sweep's cell beside the printed one; ``equal`` means as printed."""
    assert cell.difference is not None
    is_equal = f"{cell.tuned.mean:.1f}" == f"{cell.default.mean:.1f}"
    return "equal" if is_equal else _WORDS[cell.difference.verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridComparison:
    """One metric of a block of a sweep, compared with the published one."""

    ours: Block
    theirs: Block
    metric: Metric
    cells: Mapping[Objective, Gain]
    """By ``(pair, triplet)``, where the printed cell (a mean of 3 runs) and the sweep's both have a mean: from the
    first to the second."""


def compare_blocks(ours: Iterable[Block], theirs: Iterable[Block]) -> tuple[GridComparison, ...]:
    """Compare each block with the published one of the same model; see :func:`published_key`.

    A block is compared whatever its variant, for the paper does not say which constants its tables have. Blocks and
    metrics without a counterpart are omitted.
    """
    published = {published_key(block.key): block for block in theirs}
    made = []
    for block in ours:
        if (printed := published.get(published_key(block.key))) is None:
            continue
        for key, other in ((key, other) for key, other in printed.grids.items() if key in block.grids):
            grid = block.grids[key]
            if both := {name: (other.cells[name], grid.cells[name]) for name in other.means if name in grid.means}:
                cells = compare_cells(both)
                made.append(GridComparison(ours=block, theirs=printed, metric=grid.metric, cells=cells))
    return tuple(made)


def compare_cells(cells: Mapping[Objective, tuple[CellSummary, CellSummary]]) -> dict[Objective, Gain]:
    """The change from the printed cells of a grid to a sweep's, by the one rule, without pairing; all have a mean.

    Corrected for the cells of the grid, and for other seeds alone.
    """
    sides = [[own[side] for own in cells.values()] for side in (0, 1)]
    labels = [(side, *name) for side in ("theirs", "ours") for name in cells]
    one = np.eye(len(cells))
    runs = _runs_like([*sides[0], *sides[1]])
    used = _USED_OF_TWO if 2 in (~np.isnan(runs)).sum(axis=0) else _USED_LATER
    judged = judge(runs, np.hstack([-one, one]), labels, paired=False, used=used)
    made = {}
    for row, (name, (printed, mine)) in enumerate(cells.items()):
        change = difference_of(judged, row, (mine.mean or 0.0) - (printed.mean or 0.0))
        made[name] = Gain(default=printed, tuned=mine, same=False, difference=change)
    return made


def _runs_like(cells: Sequence[CellSummary]) -> Array:
    """Runs that have the cells' means and standard deviations: (N, K), NaN where a cell has fewer than N."""
    values = np.full((max(cell.n for cell in cells), len(cells)), np.nan)
    for column, cell in enumerate(cells):
        places = np.linspace(-1, 1, cell.n) if cell.n > 1 else np.zeros(1)
        scale = (cell.std or 0.0) / places.std(ddof=1) if cell.n > 1 else 0.0
        values[: cell.n, column] = (cell.mean or 0.0) + scale * places
    return values


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


def order_agreement(block: Block, printed: Iterable[Block]) -> dict[tuple[BlockKey, Metric], float]:
    """How much a block orders the objectives as each printed grid does, whatever its model: see above."""
    found = {
        (other.key, grid.metric): rank_correlation(block.grids[key], grid)
        for other in printed
        for key, grid in other.grids.items()
        if key in block.grids
    }
    return {place: rank for place, rank in found.items() if rank is not None}


def orders_by_chance(printed: Iterable[Block]) -> tuple[float, float]:
    """The middle 95 % of the mean correlation with the printed grids that their own mean order has by chance.

    Its rows and its columns are permuted in all ways, which keeps what a weight does in every row or column.
    """
    grids_GK = stats.rankdata([list(g.means.values()) for own in printed for g in own.grids.values()], axis=1)
    shape = (len(PAIRS), len(TRIPLETS))
    mean = stats.rankdata(grids_GK.mean(axis=0)).reshape(shape)
    orders = [mean[list(rows)][:, list(columns)] for rows, columns in product(*(permutations(range(n)) for n in shape))]
    found = np.corrcoef(np.reshape(orders, (len(orders), -1)), grids_GK)[: len(orders), len(orders) :].mean(axis=1)
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)
