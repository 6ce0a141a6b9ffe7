"""Whether a sweep orders the objectives as the paper's blocks do, for each point of its axes.

The paper does not state every constant of its objectives. A sweep over the readings of its text can be asked which of
them gives the printed order. Levels of recall differ between datasets and models, so only ranks are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import ALPHA, Block, BlockKey, CellSummary, Grid, Objective
from analysis.published.verdicts import pooled
from sweeps.results import MAIN_METRICS, METRICS, Metric

_NUM_DRAWS = 4_000
_MIN_OBJECTIVES = 3
_Ranked = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A rank correlation, or a difference of two, with the interval that training noise gives it."""

    value: float
    low: float
    """Lower end of the interval: what repeating the trainings of both sides with other seeds would do."""
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOrder:
    """One point of a sweep's axes beside every printed grid."""

    block: Block
    agreement: Mapping[tuple[BlockKey, Metric], Estimate]
    """Spearman's rank correlation with each printed grid, 95 % intervals."""
    mean: Mapping[str, Estimate]
    """Mean over the printed blocks by direction, and over all grids under ``both``; 95 % intervals."""
    behind: Estimate | None
    """Mean over all grids minus that of the best point; None for the best. The interval is corrected for the number of
    points compared with the best (Bonferroni, together 95 %)."""

    @property
    def rejected(self) -> bool:
        """Whether training noise cannot explain that this point agrees less than the best."""
        return self.behind is not None and self.behind.high < 0


def order_agreement(blocks: Sequence[Block], printed: Sequence[Block]) -> tuple[PointOrder, ...]:
    """Compare the order of the objectives at each point with every printed grid, R@1 in both directions.

    The noise of a mean is the standard deviation pooled over its grid, by the root of the number of runs. Both sides
    are drawn anew from it; cells that two points share are drawn once. A rank correlation of drawn means lies lower
    than that of the means themselves, so only the spread of the draws is used, around the measured value.

    Args:
        blocks: the points of one model and stage.
        printed: the paper's blocks.

    Returns:
        In the order of ``blocks``; those without three objectives in common with every printed grid are omitted.
    """
    metrics = [metric for metric in METRICS.values() if metric in MAIN_METRICS and metric.direction != "both"]
    complete = [block for block in blocks if all(_has_means(block, metric) for metric in metrics)]
    if not complete:
        return ()
    random = np.random.default_rng(0)
    theirs = {(own.key, metric): _Draws(random).of(own.grids[metric.key]) for own in printed for metric in metrics}
    drawn = {metric: _Draws(random) for metric in metrics}
    correlations = []
    for block in complete:
        ours = {metric: drawn[metric].of(block.grids[metric.key]) for metric in metrics}
        correlations.append({key: _spearman(ours[key[1]], other) for key, other in theirs.items()})
    overall = [_mean_of(own, "both") for own in correlations]
    best = max(range(len(complete)), key=lambda index: overall[index][0])
    num_compared = max(1, len(complete) - 1)
    return tuple(
        PointOrder(
            block=block,
            agreement={key: _estimate(values, ALPHA) for key, values in own.items()},
            mean={name: _estimate(_mean_of(own, name), ALPHA) for name in ("i2t", "t2i", "both")},
            behind=None if index == best else _estimate(overall[index] - overall[best], ALPHA / num_compared, most=2.0),
        )
        for index, (block, own) in enumerate(zip(complete, correlations, strict=True))
    )


class _Draws:
    """Draws of the means of cells, the same one for a cell that several grids share."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._noise: dict[tuple[Objective, CellSummary], _Ranked] = {}

    def of(self, grid: Grid) -> dict[Objective, _Ranked]:
        """By objective its mean, followed by its draws: (1 + draws,)."""
        noise_of_grid = pooled(grid.cells.values())
        spread = noise_of_grid.variance**0.5 if noise_of_grid else 0.0
        drawn = {}
        for objective, mean in grid.means.items():
            cell = grid.cells[objective]
            # Cells of two grids with the same mean, deviation and number of runs are the same trainings.
            if (objective, cell) not in self._noise:
                self._noise[objective, cell] = self._random.standard_normal(_NUM_DRAWS)
            # Rounded, so that equal means remain equal despite rounding errors.
            noise = spread / max(1, cell.n) ** 0.5 * self._noise[objective, cell]
            drawn[objective] = np.concatenate([[round(mean, 9)], mean + noise])
        return drawn


def _has_means(block: Block, metric: Metric) -> bool:
    grid = block.grids.get(metric.key)
    return grid is not None and len(set(grid.means.values())) >= _MIN_OBJECTIVES


def _spearman(ours: Mapping[Objective, _Ranked], theirs: Mapping[Objective, _Ranked]) -> _Ranked:
    """Rank correlations of the means and of each draw, over the objectives that both sides have."""
    both = [objective for objective in ours if objective in theirs]
    ranks = [stats.rankdata(np.stack([side[objective] for objective in both]), axis=0) for side in (ours, theirs)]
    a, b = (rank - rank.mean(axis=0) for rank in ranks)
    return np.asarray((a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0)))


def _mean_of(correlations: Mapping[tuple[BlockKey, Metric], _Ranked], direction: str) -> _Ranked:
    rows = [values for (_, metric), values in correlations.items() if direction in ("both", metric.direction)]
    return np.asarray(np.mean(rows, axis=0))


def _estimate(values: _Ranked, alpha: float, most: float = 1.0) -> Estimate:
    """The first of the values with a normal interval by the others' spread, cut at the most that is possible."""
    value, reach = float(values[0]), float(stats.norm.ppf(1 - alpha / 2) * values[1:].std(ddof=1))
    return Estimate(value=value, low=max(-most, value - reach), high=min(most, value + reach))
