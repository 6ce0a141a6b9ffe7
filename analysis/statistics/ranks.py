"""Ranks of the objectives over blocks: Friedman's test and Nemenyi's critical difference.

A block counts once, whatever its number of seeds: seeds repeat a measurement, and the results generalise over blocks.
Source: Demšar 2006, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

MIN_BLOCKS = 3
"""The fewest blocks over which objectives are ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankComparison:
    """The objectives ranked over blocks by one metric; rank 1 is the best."""

    num_blocks: int
    mean_ranks: Mapping[str, float]
    """By objective, best first; ties share their mean rank."""
    friedman: float
    """Friedman's chi-squared, corrected for ties."""
    p: float
    """Its p-value from the chi-squared distribution with k - 1 degrees of freedom; approximate for few blocks."""
    critical_difference: float
    """Two mean ranks further apart than this differ significantly at 5 % (Nemenyi)."""

    def p_between(self, name: str, other: str) -> float:
        """The p-value of the difference between two mean ranks by Nemenyi's test."""
        num_objectives = len(self.mean_ranks)
        distance = abs(self.mean_ranks[name] - self.mean_ranks[other]) / _unit(num_objectives, self.num_blocks)
        return float(min(1.0, stats.studentized_range.sf(distance * 2**0.5, num_objectives, np.inf)))

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The largest sets of objectives that do not differ significantly by Nemenyi's test, best first."""
        names, ranks = list(self.mean_ranks), list(self.mean_ranks.values())
        groups: list[tuple[int, int]] = []
        for start in range(len(names)):
            end = max(i for i in range(start, len(names)) if ranks[i] - ranks[start] <= self.critical_difference)
            if end > start and not any(s <= start and end <= e for s, e in groups):
                groups.append((start, end))
        return tuple(tuple(names[start : end + 1]) for start, end in groups)


def rank_objectives(means: pd.DataFrame) -> RankComparison | None:
    """Rank objectives over blocks.

    Args:
        means: a row for each block, a column for each objective, entries recalls (higher is better). Blocks that lack
            an objective are excluded, so that all objectives are ranked over the same blocks.

    Returns:
        None with fewer than three complete blocks or three objectives.
    """
    whole = means.dropna()
    num_blocks, num_objectives = whole.shape
    if num_blocks < MIN_BLOCKS or num_objectives < 3:
        return None
    # Rounded, so that equal means remain equal despite rounding errors.
    ranks = whole.round(9).rank(axis=1, ascending=False)
    mean_ranks = ranks.mean().sort_values(kind="stable")
    statistic, p = 0.0, 1.0
    if (ranks.nunique(axis=1) > 1).any():  # otherwise all objectives are equal in every block
        statistic, p = stats.friedmanchisquare(*(whole[name].round(9) for name in whole))
    return RankComparison(
        num_blocks=num_blocks,
        mean_ranks={str(name): float(rank) for name, rank in mean_ranks.items()},
        friedman=float(statistic),
        p=float(p),
        critical_difference=_critical_q(num_objectives) * _unit(num_objectives, num_blocks),
    )


def _unit(num_objectives: int, num_blocks: int) -> float:
    """Standard error of the difference of two mean ranks."""
    return float((num_objectives * (num_objectives + 1) / (6 * num_blocks)) ** 0.5)


@cache
def _critical_q(num_objectives: int) -> float:
    return float(stats.studentized_range.ppf(0.95, num_objectives, np.inf)) / 2**0.5
