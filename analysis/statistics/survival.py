"""Whether a ranking of objectives survives tuning: Kendall's tau between the two grids of a block, and its noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import Objective
from analysis.run_schema import Metric
from analysis.statistics.comparison import compare
from analysis.statistics.tuned import BlockPair, in_both, is_same, values_of

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns

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
    low: float | None
    """Lower end of its 95 % interval, by the noise of the trainings; None, like the next three, with one seed."""
    high: float | None
    chance_low: float | None
    """95 % of the values that noise alone gives, were all objectives equal in both grids, are not below this."""
    chance_high: float | None
    """And not above this: with trainings that both grids share, or seeds that move both alike, it is well above 0."""
    seeds: int
    """The fewest runs of an objective in either grid."""
    objectives: int
    """Those with a value in both grids."""
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
    def same_winner(self) -> bool:
        """Whether an objective has the highest mean as printed in both grids."""
        default, tuned = self.winners
        return bool(set(default) & set(tuned))


def survivals(sweep: SweepRuns, pairs: Iterable[BlockPair]) -> tuple[Survival, ...]:
    """Whether the ranking survives, for each block and metric with two objectives in both grids."""
    return tuple(
        found
        for pair in pairs
        for grid in pair.default.grids.values()
        if (found := _survival(sweep, pair, grid.metric)) is not None
    )


def _survival(sweep: SweepRuns, pair: BlockPair, metric: Metric) -> Survival | None:
    default, tuned = (values_of(sweep, block, metric) for block in (pair.default, pair.tuned))
    both = in_both(default, tuned)
    if len(both) < 2:
        return None
    means = [frame[both].mean().round(9) for frame in (default, tuned)]
    signs = [np.sign([mean[one] - mean[other] for one, other in combinations(both, 2)]) for mean in means]
    same = np.array([is_same(sweep, pair, key) for key in both])
    tau = _tau(*(mean.to_numpy(float) for mean in means))
    low, high, chance_low, chance_high = _by_noise(default[both], tuned[both], same, tau)
    comparisons = [compare(frame) for frame in (default, tuned)]
    verdicts = []
    for one, other in combinations(both, 2):
        first, second = (comparison.difference(one, other) for comparison in comparisons)
        if first.told_apart:
            verdicts.append(np.sign(first.estimate * second.estimate) if second.told_apart else 0)
    return Survival(
        pair=pair,
        metric=metric,
        tau=tau,
        low=low,
        high=high,
        chance_low=chance_low,
        chance_high=chance_high,
        seeds=min(int(frame[both].notna().sum().min()) for frame in (default, tuned)),
        objectives=len(both),
        kept=int((signs[0] * signs[1] > 0).sum()),
        pairs=len(signs[0]),
        apart=len(verdicts),
        confirmed=sum(verdict > 0 for verdict in verdicts),
        reversed=sum(verdict < 0 for verdict in verdicts),
    )


def _by_noise(
    default: pd.DataFrame, tuned: pd.DataFrame, same: NDArray[np.bool_], tau: float | None
) -> tuple[float | None, float | None, float | None, float | None]:
    """What other seeds would do to tau: the ends of its interval, and of what noise alone gives.

    The noise of a grid is the deviation over seeds, pooled over its objectives, after each seed's mean is taken out,
    which changes no rank. The runs of a seed in both grids share much (the first weights, the batches), so their noise
    is drawn with its measured correlation; an objective whose choice was the default has one training, and one draw.
    Drawn means have the noise of the measured ones and that of the draw, so only the spread of tau over the draws is
    used, around the measured value.

    Args:
        default: a row for each seed, a column for each objective.
        tuned: of the same objectives.
        same: for each objective, whether its choice was the default.
        tau: the measured value.
    """
    residuals = [
        _residuals(frame.reindex(default.index.union(tuned.index)).to_numpy(float)) for frame in (default, tuned)
    ]
    freedoms = [_freedom(one) for one in residuals]
    if tau is None or min(freedoms) < 1:
        return None, None, None, None
    spreads = [float(np.sqrt(np.nansum(one**2) / freedom)) for one, freedom in zip(residuals, freedoms, strict=True)]
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, _DRAWS, len(same)))
    together = _correlation(residuals[0][:, ~same], residuals[1][:, ~same])
    roots = [np.sqrt(frame.notna().sum().to_numpy(float)) for frame in (default, tuned)]
    of_default = first * spreads[0] / roots[0]
    own = (together * first + np.sqrt(1 - together**2) * second) * spreads[1] / roots[1]
    of_tuned = np.where(same, of_default, own)
    means = [frame.mean().to_numpy(float) for frame in (default, tuned)]
    drawn = _taus(means[0] + of_default, means[1] + of_tuned)
    chance_low, chance_high = np.quantile(_taus(of_default, of_tuned), [_TAIL, 1 - _TAIL])
    reach = float(stats.norm.ppf(1 - _TAIL) * drawn.std(ddof=1))
    return max(-1.0, tau - reach), min(1.0, tau + reach), float(chance_low), float(chance_high)


def _residuals(values_SK: _Array) -> _Array:
    centred = values_SK - np.nanmean(values_SK, axis=0)
    return np.asarray(centred - np.nanmean(centred, axis=1, keepdims=True))


def _freedom(values_SK: _Array) -> int:
    """Of the residuals of S seeds and K objectives: their number without that of the means."""
    num_seeds, num_objectives = values_SK.shape
    return int(np.count_nonzero(~np.isnan(values_SK))) - int(num_seeds) - int(num_objectives) + 1


def _correlation(one: _Array, other: _Array) -> float:
    """Of the noise of both grids at the same seed, 0 to 1; a negative one is taken for chance."""
    known = ~np.isnan(one) & ~np.isnan(other)
    products = [float((a[known] * b[known]).sum()) for a, b in ((one, other), (one, one), (other, other))]
    return float(np.clip(products[0] / np.sqrt(products[1] * products[2]), 0, 1)) if min(products[1:]) > 0 else 0.0


def _taus(one_DK: _Array, other_DK: _Array) -> _Array:
    """Kendall's tau of each row, which has no ties."""
    pairs = list(combinations(range(one_DK.shape[1]), 2))
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    signs = [np.sign(side[:, left] - side[:, right]) for side in (one_DK, other_DK)]
    return np.asarray((signs[0] * signs[1]).mean(axis=1))


def _tau(one: _Array, other: _Array) -> float | None:
    """Kendall's tau-b; None if all entries of a side are equal."""
    if min(np.ptp(one), np.ptp(other)) == 0:
        return None
    return float(stats.kendalltau(one, other).statistic)
