"""The one rule for "within noise": which objectives of a block cannot be told apart from the best.

Every statement on two objectives of a block follows from it: marks, words, figures and MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.blocks import Comparison, Difference, Objective
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
    return {
        (names[i], names[j]): _difference(float(estimates[i, j]), float(reaches[i, j]), float(p_KK[i, j]))
        for i in range(len(names))
        for j in range(len(names))
        if i != j
    }


def _difference(estimate: float, reach: float, p: float) -> Difference:
    if np.isnan(p):
        return Difference(estimate=estimate, low=None, high=None, p=None)
    return Difference(estimate=estimate, low=estimate - reach, high=estimate + reach, p=p)
