"""A sweep beside the paper: what can be said of each cell, and how alike the objectives are ordered.

The paper prints no single runs, so its seeds cannot be paired with a sweep's, and the rule for the objectives of one
sweep does not apply. Its counterpart for unpaired summaries pools the spread over each grid and corrects for the number
of cells. Orders are only described: another dataset, model or number of epochs may give another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final, Literal

from scipy import stats

from analysis.blocks import ALPHA, Block, BlockKey, CellSummary, Grid, Objective
from analysis.published.numbers import published_key
from sweeps.results import Metric

CellVerdict = Literal["equal", "within noise", "higher", "lower", "not judged"]
VERDICTS: Final[Mapping[CellVerdict, str]] = {
    "equal": "the means are equal as printed",
    "within noise": "the 95 % interval of the difference contains 0 (Welch's t from both means, deviations and numbers "
    "of runs, unpaired, Bonferroni-corrected for the cells of the grid; a side's deviation is the largest of those "
    "pooled over its grid, over the cell's row or column, and its own)",
    "higher": "above that interval",
    "lower": "below it",
    "not judged": "a side has no standard deviation",
}
"""Every verdict on a cell and its meaning; the first that applies is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """A cell of a sweep beside the printed one; both have a mean."""

    ours: CellSummary
    theirs: CellSummary
    verdict: CellVerdict

    @property
    def difference(self) -> float:
        """The sweep's minus the printed mean, in points."""
        return (self.ours.mean or 0.0) - (self.theirs.mean or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridComparison:
    """One metric of a block of a sweep, compared with the published one."""

    block: Block
    metric: Metric
    cells: Mapping[Objective, CellComparison]
    """By ``(pair, triplet)``, where the sweep's cell and the printed one (a mean of 3 runs) both have a mean."""
    spearman: float | None
    """See `rank_correlation`."""

    def count(self, verdict: CellVerdict) -> int:
        """The number of cells with a verdict."""
        return sum(cell.verdict == verdict for cell in self.cells.values())


def compare_blocks(ours: Iterable[Block], theirs: Iterable[Block]) -> tuple[GridComparison, ...]:
    """Compare each block with the published one of the same model; see :func:`published_key`.

    A block is compared whatever its variant, for the paper does not say which constants its tables have. Blocks and
    metrics without a counterpart are omitted.
    """
    published = {published_key(block.key): block.grids for block in theirs}
    made = []
    for block in ours:
        for key, printed in published.get(published_key(block.key), {}).items():
            grid = block.grids.get(key)
            both = [name for name in printed.means if grid is not None and name in grid.means]
            if grid is not None and both:
                cells = judge({name: (grid.cells[name], printed.cells[name]) for name in both})
                rank = rank_correlation(grid, printed)
                made.append(GridComparison(block=block, metric=grid.metric, cells=cells, spearman=rank))
    return tuple(made)


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


def judge(cells: Mapping[Objective, tuple[CellSummary, CellSummary]]) -> dict[Objective, CellComparison]:
    """A verdict for each pair of cells (the sweep's and the printed one) of a grid; both sides must have a mean."""
    sides = [{name: pair[side] for name, pair in cells.items()} for side in (0, 1)]
    judged = {}
    for objective, (mine, printed) in cells.items():
        reach = _reach([_of_mean(side, objective) for side in sides], len(cells))
        verdict = _verdict(mine.mean or 0.0, printed.mean or 0.0, reach)
        judged[objective] = CellComparison(ours=mine, theirs=printed, verdict=verdict)
    return judged


def _of_mean(cells: Mapping[Objective, CellSummary], objective: Objective) -> tuple[float, int]:
    """The variance of a cell's mean, with the degrees of freedom of its grid: a cell, row or column may be noisier."""
    lines = [[cell for name, cell in cells.items() if name[part] == objective[part]] for part in (0, 1)]
    largest = max(_pooled(group)[0] for group in (cells.values(), *lines, [cells[objective]]))
    return largest / cells[objective].n, _pooled(cells.values())[1]


def _pooled(cells: Collection[CellSummary]) -> tuple[float, int]:
    """The variance within the cells, with its degrees of freedom: 0 if no cell has one."""
    spreads = [(cell.std**2, cell.n - 1) for cell in cells if cell.std is not None]
    df = sum(weight for _, weight in spreads)
    return (sum(variance * weight for variance, weight in spreads) / df if df else 0.0), df


def _reach(parts: Collection[tuple[float, int]], num_cells: int) -> float:
    """Half the width of the corrected interval of a difference; infinite without a spread on either side."""
    if any(df == 0 for _, df in parts):
        return inf
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0
    df = total**2 / sum(variance**2 / free for variance, free in parts)
    return float(stats.t.ppf(1 - ALPHA / (2 * num_cells), df)) * sqrt(total)


def _verdict(mine: float, printed: float, reach: float) -> CellVerdict:
    if f"{mine:.1f}" == f"{printed:.1f}":
        return "equal"
    if reach == inf:
        return "not judged"
    if abs(mine - printed) <= reach:
        return "within noise"
    return "higher" if mine > printed else "lower"
