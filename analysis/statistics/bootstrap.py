"""Intervals by resampling: what a mean difference could have been with other seeds of the same blocks.

Resampling is stratified: every draw keeps each block and takes as many of its seeds as a block can spare. Drawing
n - 1 of a block's n seeds, with replacement, makes the variance of the resampled mean an unbiased estimate; drawing n,
as is usual, would make it (n - 1) / n of that, a third too small with three seeds.
Source: Rao & Wu 1988, "Resampling inference with complex survey data", section 2 (strata of size n, draws of n - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

DRAWS = 4000
MIN_FREE = 10
"""Runs beyond the first of each block, in all, below which the interval would be narrower than it says: its resampled
means take the spread of few runs for the spread of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A percentile interval of a mean over blocks."""

    mean: float
    """Mean over blocks of the mean over seeds, in points."""
    low: float
    high: float
    blocks: int
    runs: int


def mean_interval(
    values: pd.Series[float], strata: Sequence[str], *, confidence: float = 0.95, seed: int = 0
) -> Interval | None:
    """Interval of the mean over blocks, every block weighted equally.

    Args:
        values: one value a run, indexed by the run's block and seed.
        strata: index levels that name the block.
        confidence: of the interval; it covers about this share where the runs' means are near to normal.
        seed: of the draws; the same values give the same interval.

    Returns:
        None when fewer than :data:`MIN_FREE` runs are free to vary, or no block has two seeds.
    """
    groups = [group.to_numpy(float) for _, group in values.groupby(level=list(strata))]
    repeated = [group for group in groups if len(group) > 1]
    if len(repeated) < len(groups) or sum(len(group) - 1 for group in groups) < MIN_FREE:
        return None
    generator = np.random.default_rng(seed)
    draws = np.zeros(DRAWS)
    for group in groups:
        chosen = generator.integers(len(group), size=(DRAWS, len(group) - 1))
        draws += group[chosen].mean(axis=1)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws / len(groups), [tail, 100 - tail])
    mean = float(np.mean([group.mean() for group in groups]))
    runs = sum(len(group) for group in groups)
    return Interval(mean=mean, low=float(low), high=float(high), blocks=len(groups), runs=runs)


def difference_intervals(
    runs: pd.DataFrame, metric: str, baseline: tuple[str, str], block: Sequence[str]
) -> dict[tuple[str, str], Interval]:
    """Each objective minus the baseline, paired by block and seed.

    Args:
        runs: runs that count, of one stage.
        metric: column of the metric.
        baseline: ``(pair, triplet)`` that is subtracted.
        block: columns that name a block.

    Returns:
        By ``(pair, triplet)``; objectives with too few pairs are left out.
    """
    wide = runs.pivot(index=[*block, "seed"], columns=["pair", "triplet"], values=metric)
    if baseline not in wide.columns:
        return {}
    found: dict[tuple[str, str], Interval] = {}
    columns: list[tuple[str, str]] = list(wide.columns)  # type: ignore[arg-type]  # columns of two levels
    for pair, triplet in columns:
        differences = (wide[pair, triplet] - wide[baseline]).dropna()
        interval = None if (pair, triplet) == baseline else mean_interval(differences, block)
        if interval is not None:
            found[str(pair), str(triplet)] = interval
    return found
