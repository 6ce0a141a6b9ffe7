"""Whether a ranking of objectives survives tuning: Kendall's tau between the two grids of a block, and its noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import Objective
from analysis.results import SweepResults
from analysis.statistics.aggregation import values_of
from analysis.statistics.gains import BlockPair
from sweeps.results import Metric

Survives = Literal["yes", "in part", "not shown", "no", "cannot be judged"]
_MIN_SEEDS = 3
_DRAWS = 2_000
_TAIL = 0.025
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """Whether the ranking of a block's objectives by one metric survives tuning."""

    pair: BlockPair
    metric: Metric
    tau: float | None
    """Kendall's tau-b between the means of both grids; None where it is not defined."""
    interval: tuple[float, float] | None
    """Its 95 % interval, by the noise of the trainings; None, like the next one, with one seed."""
    chance: tuple[float, float] | None
    """95 % of the values that noise alone gives, were all objectives equal in both grids, lie between these: with
    trainings that both grids share, or seeds that move both alike, well above 0."""
    seeds: int
    """The fewest trainings of an objective in either grid."""
    kept: int
    """Pairs of objectives in the same order in both grids, by their means."""
    pairs: int
    """All pairs of these objectives."""
    apart: int
    """Pairs that the default grid tells apart by more than noise."""
    confirmed: int
    """Those of them that the tuned grid tells apart in the same order."""
    reversed: int
    """Those of them that the tuned grid tells apart in the other order."""

    @property
    def winners(self) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
        """The objectives with the highest mean as printed, in the default and in the tuned grid."""
        grids = [block.grids[self.metric.key] for block in (self.pair.default, self.pair.tuned)]
        default, tuned = (tuple(key for key in grid.means if key in grid.best()) for grid in grids)
        return default, tuned

    @property
    def shared_winners(self) -> tuple[Objective, ...]:
        """The objectives with the highest mean as printed in both grids."""
        default, tuned = self.winners
        return tuple(key for key in default if key in tuned)

    @property
    def verdict(self) -> Survives:
        """The answer in a word."""
        if self.tau is None or self.interval is None or self.chance is None:
            return "cannot be judged"
        if not self.apart or self.seeds < _MIN_SEEDS:
            return "cannot be judged"
        if self.interval[1] < 0 and self.tau < self.chance[0]:
            return "no"
        if self.interval[0] <= 0 or self.tau <= self.chance[1]:
            return "not shown"
        return "yes" if self.shared_winners and not self.reversed else "in part"


def survivals(results: SweepResults, pairs: Iterable[BlockPair]) -> tuple[Survival, ...]:
    """Whether the ranking survives, for each block and metric with two objectives in both grids."""
    return tuple(
        _survival(results, pair, grid.metric)
        for pair in pairs
        for grid in pair.default.grids.values()
        if len(pair.in_both(grid.metric)) > 1
    )


def _survival(results: SweepResults, pair: BlockPair, metric: Metric) -> Survival:
    blocks, both = (pair.default, pair.tuned), pair.in_both(metric)
    default, tuned = (values_of(results, block, metric)[both] for block in blocks)
    means = [frame.mean().round(9) for frame in (default, tuned)]
    twos = list(combinations(both, 2))
    signs = [np.sign([mean[first] - mean[second] for first, second in twos]) for mean in means]
    same = np.array([results.chose_default(pair.tuned.key, key) for key in both])
    tau = _tau(*(mean.to_numpy(float) for mean in means))
    interval, chance = _by_noise(default, tuned, same, tau)
    comparisons = [block.grids[metric.key].comparison.differences for block in blocks]
    apart = [names for names in twos if comparisons[0][names].told_apart]
    agree = [
        np.sign(comparisons[0][names].estimate * comparisons[1][names].estimate)
        for names in apart
        if comparisons[1][names].told_apart
    ]
    return Survival(
        pair=pair,
        metric=metric,
        tau=tau,
        interval=interval,
        chance=chance,
        seeds=min(int(frame.notna().sum().min()) for frame in (default, tuned)),
        kept=int((signs[0] * signs[1] > 0).sum()),
        pairs=len(twos),
        apart=len(apart),
        confirmed=sum(sign > 0 for sign in agree),
        reversed=sum(sign < 0 for sign in agree),
    )


def _by_noise(
    default: pd.DataFrame, tuned: pd.DataFrame, same: NDArray[np.bool_], tau: float | None
) -> tuple[tuple[float, float], tuple[float, float]] | tuple[None, None]:
    """What other seeds would do to tau: its interval, and what noise alone gives.

    The noise of a grid is the deviation over seeds, pooled over its objectives, after each seed's mean is taken out,
    which changes no rank. The trainings of a seed in both grids share much (the first weights, the batches), so their
    noise is drawn with its measured correlation; an objective whose choice was the default has one training, and one
    draw. Drawn means have the noise of the measured ones and that of the draw, so only the spread of tau over the draws
    is used, around the measured value.

    Args:
        default: a row for each seed, a column for each objective.
        tuned: of the same objectives.
        same: for each objective, whether its choice was the default.
        tau: the measured value.
    """
    seeds = default.index.union(tuned.index)
    residuals = [_residuals(frame.reindex(seeds).to_numpy(float)) for frame in (default, tuned)]
    # Of the residuals of S seeds and K objectives: their number without that of the means.
    freedoms = [int((~np.isnan(own)).sum()) - sum(own.shape) + 1 for own in residuals]
    if tau is None or min(freedoms) < 1:
        return None, None
    spreads = [float(np.sqrt(np.nansum(own**2) / free)) for own, free in zip(residuals, freedoms, strict=True)]
    first, second = np.random.default_rng(0).standard_normal((2, _DRAWS, len(same)))
    together = _correlation(residuals[0][:, ~same], residuals[1][:, ~same])
    roots = [np.sqrt(frame.notna().sum().to_numpy(float)) for frame in (default, tuned)]
    of_default = first * spreads[0] / roots[0]
    own = (together * first + np.sqrt(1 - together**2) * second) * spreads[1] / roots[1]
    of_tuned = np.where(same, of_default, own)
    means = [frame.mean().to_numpy(float) for frame in (default, tuned)]
    drawn = _taus(means[0] + of_default, means[1] + of_tuned)
    low, high = np.quantile(_taus(of_default, of_tuned), [_TAIL, 1 - _TAIL])
    reach = float(stats.norm.ppf(1 - _TAIL) * drawn.std(ddof=1))
    return (max(-1.0, tau - reach), min(1.0, tau + reach)), (float(low), float(high))


def _residuals(values_SK: _Array) -> _Array:
    centred = values_SK - np.nanmean(values_SK, axis=0)
    return np.asarray(centred - np.nanmean(centred, axis=1, keepdims=True))


def _correlation(ours: _Array, theirs: _Array) -> float:
    """Of the noise of both grids at the same seed, 0 to 1; a negative one is taken for chance."""
    known = ~np.isnan(ours) & ~np.isnan(theirs)
    products = [float((a[known] * b[known]).sum()) for a, b in ((ours, theirs), (ours, ours), (theirs, theirs))]
    return float(np.clip(products[0] / np.sqrt(products[1] * products[2]), 0, 1)) if min(products[1:]) > 0 else 0.0


def _taus(ours_DK: _Array, theirs_DK: _Array) -> _Array:
    """Kendall's tau of each row, which has no ties."""
    left, right = zip(*combinations(range(ours_DK.shape[1]), 2), strict=True)
    signs = [np.sign(side[:, left] - side[:, right]) for side in (ours_DK, theirs_DK)]
    return np.asarray((signs[0] * signs[1]).mean(axis=1))


def _tau(ours: _Array, theirs: _Array) -> float | None:
    """Kendall's tau-b; None if all entries of a side are equal."""
    if min(np.ptp(ours), np.ptp(theirs)) == 0:
        return None
    return float(stats.kendalltau(ours, theirs).statistic)
