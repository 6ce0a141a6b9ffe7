"""How much a sweep orders the objectives as the paper's blocks do, for each point of its axes.

The paper does not state every constant of its objectives. A sweep over the readings of its text shows which of them
come near the printed order. Levels of recall differ between datasets and models, so only ranks are compared. This is a
description: no test is made, because another dataset, model or number of epochs may give another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy import stats

from analysis.blocks import Block, BlockKey, Grid
from sweeps.results import MAIN_METRICS, METRICS, Metric

_METRICS = [metric for metric in METRICS.values() if metric in MAIN_METRICS and metric.direction != "both"]
_MIN_OBJECTIVES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOrder:
    """One point of a sweep's axes beside every printed grid."""

    block: Block
    agreement: Mapping[tuple[BlockKey, Metric], float]
    """Spearman's rank correlation of the means with each printed grid, -1 to 1."""

    def mean(self, direction: str) -> float:
        """The mean over the printed grids of a direction, or over all for ``both``."""
        return fmean(value for (_, metric), value in self.agreement.items() if direction in ("both", metric.direction))


def order_agreement(blocks: Sequence[Block], printed: Sequence[Block]) -> tuple[PointOrder, ...]:
    """Compare the order of the objectives at each point with every printed grid, R@1 in both directions.

    Args:
        blocks: the points of one model and stage.
        printed: the paper's blocks.

    Returns:
        The points, the nearest to the paper first; those without three different means are omitted.
    """
    complete = [block for block in blocks if all(_has_means(block, metric) for metric in _METRICS)]
    points = [
        PointOrder(
            block=block,
            agreement={
                (other.key, metric): _spearman(block.grids[metric.key], other.grids[metric.key])
                for other in printed
                for metric in _METRICS
            },
        )
        for block in complete
    ]
    return tuple(sorted(points, key=lambda point: -point.mean("both")))


def _has_means(block: Block, metric: Metric) -> bool:
    grid = block.grids.get(metric.key)
    return grid is not None and len(set(grid.means.values())) >= _MIN_OBJECTIVES


def _spearman(ours: Grid, theirs: Grid) -> float:
    """The rank correlation over the objectives that both have."""
    both = [objective for objective in ours.means if objective in theirs.means]
    # Rounded far below what is measured, so that equal means remain equal despite rounding errors.
    sides = [[round(side.means[objective], 9) for objective in both] for side in (ours, theirs)]
    return float(stats.spearmanr(*sides).statistic)
