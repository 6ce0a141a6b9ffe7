"""What can be said about a sweep's cell beside the printed one, from means, standard deviations and numbers of runs.

The paper prints no single runs, so its seeds cannot be paired with a sweep's, and the rule for the objectives of one
sweep does not apply. The rule here is its counterpart for unpaired summaries: a spread pooled over each grid, and a
correction for the number of comparisons.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final, Literal

from scipy import stats

from analysis.blocks import ALPHA, CellSummary, Objective

CellVerdict = Literal["equal", "within both spreads", "within noise", "higher", "lower", "not judged"]
VERDICTS: Final[Mapping[CellVerdict, str]] = {
    "equal": "the means are equal as printed",
    "within both spreads": "the difference is no larger than either standard deviation",
    "within noise": "the 95 % interval of the difference contains 0 (Welch's t from both means, deviations and numbers "
    "of runs, unpaired, Bonferroni-corrected for the cells of the grid; a side's deviation is the one pooled over its "
    "grid, or the cell's own where that is larger)",
    "higher": "above that interval",
    "lower": "below it",
    "not judged": "a side has no standard deviation",
}
"""Every verdict on a cell and its meaning; the first that applies is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """A cell of a sweep beside the printed one."""

    ours: CellSummary
    theirs: CellSummary
    difference: float
    """The sweep's minus the printed mean, in points."""
    verdict: CellVerdict


def judge(cells: Mapping[Objective, tuple[CellSummary, CellSummary]]) -> dict[Objective, CellComparison]:
    """A verdict for each pair of cells (the sweep's and the printed one) of a grid; both sides must have a mean."""
    ours, theirs = (pooled([pair[side] for pair in cells.values()]) for side in (0, 1))
    judged = {}
    for objective, (mine, printed) in cells.items():
        difference = _mean(mine) - _mean(printed)
        judged[objective] = CellComparison(
            ours=mine,
            theirs=printed,
            difference=difference,
            verdict=_verdict(mine, printed, difference, _reach(mine, printed, ours, theirs, len(cells))),
        )
    return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The noise of a grid."""

    variance: float
    df: int


def pooled(cells: Collection[CellSummary]) -> Pooled | None:
    """The variance within the cells; None if no cell has one."""
    spreads = [(cell.std**2, cell.n - 1) for cell in cells if cell.std is not None]
    df = sum(weight for _, weight in spreads)
    return Pooled(variance=sum(variance * weight for variance, weight in spreads) / df, df=df) if df else None


def _reach(mine: CellSummary, printed: CellSummary, ours: Pooled | None, theirs: Pooled | None, num: int) -> float:
    """Half the width of the corrected interval of their difference; infinite without a spread on either side."""
    if ours is None or theirs is None:
        return inf
    parts = [
        (max(noise.variance, (cell.std or 0.0) ** 2) / cell.n, noise.df)
        for cell, noise in ((mine, ours), (printed, theirs))
    ]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0
    df = total**2 / sum(variance**2 / free for variance, free in parts)
    return float(stats.t.ppf(1 - ALPHA / (2 * num), df)) * sqrt(total)


def _verdict(mine: CellSummary, printed: CellSummary, difference: float, reach: float) -> CellVerdict:
    if f"{_mean(mine):.1f}" == f"{_mean(printed):.1f}":
        return "equal"
    spreads = [cell.std for cell in (mine, printed)]
    # A printed deviation has one decimal; the margin is for the rounding error of a subtraction.
    if all(std is not None and abs(difference) <= std + 1e-9 for std in spreads):
        return "within both spreads"
    if reach == inf:
        return "not judged"
    if abs(difference) <= reach:
        return "within noise"
    return "higher" if difference > 0 else "lower"


def _mean(cell: CellSummary) -> float:
    assert cell.mean is not None
    return cell.mean
