"""The one rule for "within noise": which objectives of a block cannot be told apart from the best.

Every statement on two objectives of a block follows from it: marks, words, figures and MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.blocks import ALPHA, Comparison, Difference, Objective
from analysis.statistics.spread import Array, judge, pairwise


def compare(values: pd.DataFrame) -> Comparison:
    """Compare the objectives of a block by the runs of their seeds.

    The probability that equal objectives, equally noisy, give any false statement is at most 5 %, and intervals are
    simultaneous 95 % intervals; see `analysis.statistics.spread`.

    Args:
        values: a row for each seed, a column for each objective (pair, triplet), entries in points; NaN where a run is
            missing.
    """
    known = values.dropna(axis=0, how="all").dropna(axis=1, how="all")
    names = [(str(name[0]), str(name[1])) for name in known.columns]
    return _compare(names, known.to_numpy(float), paired=True)


def compare_printed(cells: Mapping[Objective, tuple[float, float]], n: int) -> Comparison:
    """The same from printed means and standard deviations (ddof=1) of n runs each, not paired by their seeds."""
    shape = np.linspace(-1, 1, n)
    shape /= shape.std(ddof=1) if n > 1 else 1
    columns = [mean + std * shape for mean, std in cells.values()]
    return _compare(list(cells), np.column_stack(columns) if columns else np.empty((0, 0)), paired=False)


def _compare(names: list[Objective], values_SK: Array, *, paired: bool) -> Comparison:
    if not names:
        return Comparison()
    means = np.nanmean(values_SK, axis=0)
    differences = _differences(names, values_SK, means, paired=paired)
    return Comparison(best=names[int(np.argmax(means))], differences=differences)


def _differences(
    names: list[Objective], values_SK: Array, means: Array, *, paired: bool
) -> dict[tuple[Objective, Objective], Difference]:
    pairs, counts = list(combinations(range(len(names)), 2)), (~np.isnan(values_SK)).sum(axis=0)
    judged = judge(values_SK, pairwise(len(names)), paired=paired) if pairs else None
    estimates, reaches, p_KK = (np.full((len(names), len(names)), np.nan) for _ in range(3))
    for row, (i, j) in enumerate(pairs):
        estimates[i, j] = means[i] - means[j]
        if judged is not None and not np.isnan(judged.p[row]) and min(counts[i], counts[j]) > 1:
            estimates[i, j] = judged.estimates[row]
            reaches[i, j] = reaches[j, i] = judged.reach[row]
            p_KK[i, j] = p_KK[j, i] = judged.p[row]
        estimates[j, i] = -estimates[i, j]
    p_KK = _in_order(p_KK, estimates, means, counts)
    return {
        (names[i], names[j]): _difference(float(estimates[i, j]), float(reaches[i, j]), float(p_KK[i, j]))
        for i in range(len(names))
        for j in range(len(names))
        if i != j
    }


def _in_order(p_KK: Array, estimates: Array, means: Array, counts: NDArray[np.intp]) -> Array:
    """Let verdicts follow the order of the means.

    An objective that is noisier than others has wider intervals. So it could pass for level with the best, although
    one with a higher mean is told apart from it. Therefore two objectives are told apart, just so, where any two with
    as many runs are whose means lie between theirs. Where all objectives are equal, this adds no false statement,
    because another one must come first.
    """
    at_most = (means[None] <= means[:, None]) & (counts[None] == counts[:, None])
    apart = (estimates > 0) & (p_KK < ALPHA)
    apart = (at_most[:, :, None] & apart[None]).any(axis=1)
    apart = (at_most.T[None] & apart[:, None]).any(axis=2)
    just = ((apart & (estimates > 0)) | (apart.T & (estimates < 0))) & (p_KK >= ALPHA)
    return np.where(just, np.nextafter(ALPHA, 0), p_KK)


def _difference(estimate: float, reach: float, p: float) -> Difference:
    if np.isnan(p):
        return Difference(estimate=estimate, low=None, high=None, p=None)
    low, high = estimate - reach, estimate + reach
    if p >= ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    elif estimate > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return Difference(estimate=estimate, low=low, high=high, p=p)
