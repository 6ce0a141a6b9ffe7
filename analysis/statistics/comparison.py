"""The one rule for "within noise": which objectives of a block cannot be told apart from the best.

Every statement on two objectives of a block follows from it: marks, words, figures and MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.blocks import Difference, Objective
from analysis.run_schema import BASELINE
from analysis.statistics.spread import Array, judge, pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The objectives of a block compared by one metric."""

    best: Objective | None
    """The objective with the highest mean; None without values."""
    level: frozenset[Objective]
    """Those that cannot be told apart from the best, without the best itself.

    Marks follow the order of the means: an objective that is too noisy to be told apart from the best, but lies below
    one with as many seeds that is told apart, is not level.
    """
    unjudged: frozenset[Objective]
    """Those whose difference from the best has no interval, because one of the two has a single run."""
    seeds: int
    """The number of seeds with a run."""
    differences: Mapping[tuple[Objective, Objective], Difference] = field(repr=False)
    """First minus second, for each two objectives in either order."""

    def difference(self, one: Objective, other: Objective) -> Difference:
        """One minus other, under the same rule as ``level``.

        Raises:
            KeyError: one of them has no value, or they are the same.
        """
        return self.differences[one, other]

    @property
    def from_baseline(self) -> dict[Objective, Difference]:
        """Each objective minus con/con; empty where con/con has no value."""
        return {one: found for (one, other), found in self.differences.items() if other == BASELINE}


def compare(values: pd.DataFrame) -> Comparison:
    """Compare the objectives of a block by the runs of their seeds.

    The probability that equal objectives give any false statement is at most 5 %, and intervals are simultaneous 95 %
    intervals; see `analysis.statistics.spread`.

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
        return Comparison(best=None, level=frozenset(), unjudged=frozenset(), seeds=0, differences={})
    means, counts = np.nanmean(values_SK, axis=0), (~np.isnan(values_SK)).sum(axis=0)
    differences = _differences(names, values_SK, means, counts, paired=paired)
    top = int(np.argmax(means))
    against = {i: differences[names[top], name] for i, name in enumerate(names) if i != top}
    apart = [i for i, found in against.items() if found.low is not None and found.low > 0]
    level = {
        i
        for i, found in against.items()
        if found.low is not None and not any(counts[i] == counts[j] and means[i] <= means[j] for j in apart)
    }
    return Comparison(
        best=names[top],
        level=frozenset(names[i] for i in level.difference(apart)),
        unjudged=frozenset(names[i] for i, found in against.items() if found.low is None),
        seeds=len(values_SK),
        differences=differences,
    )


def _differences(
    names: list[Objective], values_SK: Array, means: Array, counts: Array, *, paired: bool
) -> dict[tuple[Objective, Objective], Difference]:
    judged = judge(values_SK, pairwise(len(names)), paired=paired) if len(names) > 1 else None
    found = {}
    for row, (i, j) in enumerate(combinations(range(len(names)), 2)):
        if judged is None or np.isnan(judged.p[row]) or min(counts[i], counts[j]) < 2:
            estimate, reach, p = float(means[i] - means[j]), None, None
        else:
            estimate, reach, p = (float(array[row]) for array in (judged.estimates, judged.reach, judged.p))
        found[names[i], names[j]] = _difference(estimate, reach, p)
        found[names[j], names[i]] = _difference(-estimate, reach, p)
    return found


def _difference(estimate: float, reach: float | None, p: float | None) -> Difference:
    if reach is None:
        return Difference(estimate=estimate, low=None, high=None, p=None)
    return Difference(estimate=estimate, low=estimate - reach, high=estimate + reach, p=p)
