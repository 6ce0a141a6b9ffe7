"""What tuning does to the order of the objectives: which pairs of it are confirmed, reversed, or left undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats

from analysis.blocks import Comparison, Objective
from analysis.statistics.gains import BlockPair
from sweeps.results import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """The order of a block's objectives by one metric, in the default and in the tuned grid."""

    pair: BlockPair
    metric: Metric
    tau: float | None
    """Kendall's tau-b between the means of both grids; None where all means of a grid are equal."""
    confirmed: int
    """Pairs of objectives that both grids tell apart by more than noise, in the same order."""
    reversed: int
    """Pairs that both tell apart, in opposite orders."""
    undecided: int
    """Pairs that the default grid alone tells apart."""

    @property
    def apart(self) -> int:
        """Pairs that the default grid tells apart."""
        return self.confirmed + self.reversed + self.undecided

    @property
    def winners(self) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
        """The objectives with the highest mean as printed, in the default and in the tuned grid."""
        grids = [block.grids[self.metric.key] for block in (self.pair.default, self.pair.tuned)]
        default, tuned = (tuple(key for key in grid.means if key in grid.best()) for grid in grids)
        return default, tuned


def survivals(pairs: Iterable[BlockPair]) -> tuple[Survival, ...]:
    """The orders of each block and metric with two objectives in both grids."""
    return tuple(
        _survival(pair, grid.metric)
        for pair in pairs
        for grid in pair.default.grids.values()
        if len(pair.in_both(grid.metric)) > 1
    )


def fates(default: Comparison, tuned: Comparison) -> Counter[str]:
    """How many of the pairs that the default grid tells apart are confirmed, reversed or undecided in the tuned one."""
    names = {"better": "confirmed", "worse": "reversed", "level": "undecided", "unknown": "undecided"}
    apart = (pair for pair, change in default.differences.items() if change.verdict == "better")
    return Counter(names[tuned.differences[pair].verdict] for pair in apart if pair in tuned.differences)


def _survival(pair: BlockPair, metric: Metric) -> Survival:
    both, grids = pair.in_both(metric), [block.grids[metric.key] for block in (pair.default, pair.tuned)]
    found = fates(*(grid.comparison for grid in grids))
    means = [[round(grid.means[name], 9) for name in sorted(both)] for grid in grids]
    return Survival(
        pair=pair,
        metric=metric,
        tau=float(stats.kendalltau(*means).statistic) if min(len(set(own)) for own in means) > 1 else None,
        confirmed=found["confirmed"],
        reversed=found["reversed"],
        undecided=found["undecided"],
    )
