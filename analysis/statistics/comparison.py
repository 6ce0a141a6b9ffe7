"""The one rule for "within noise": which objectives of a block cannot be told apart from the best.

Every statement on two objectives of a block follows from it: marks, words, figures and MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import Comparison, Difference
from goal_sweep.analysis.statistics.spread import Judged, judge, pairwise


def compare(values: pd.DataFrame, noise: Mapping[str, pd.DataFrame] | None = None) -> Comparison:
    """Compare the objectives of a block by the runs of their seeds.

    The probability of any false statement on equal objectives, equally noisy, is at most 5 %, and intervals are
    simultaneous 95 % intervals; docs/statistics.md has the rates where noise is unequal, `analysis.statistics.spread`
    the rule.

    Args:
        values: a row for each seed, a column for each objective (pair, triplet), entries in points; NaN where a run is
            missing.
        noise: what else than seeds would be new, ``test images`` (as by `shared_noise`) or ``searches`` (as by
            `luck_of_search`), to the covariance of the objectives over it.
    """
    known = values.dropna(axis=0, how="all").dropna(axis=1, how="all")
    names = [(str(name[0]), str(name[1])) for name in known.columns]
    if not names:
        return Comparison(beyond_seeds=tuple(noise or ()))
    means = known.mean().to_numpy()
    parts = [own.loc[names, names].to_numpy(float) for own in (noise or {}).values()]
    pairs = list(combinations(range(len(names)), 2))
    beyond = np.sum(parts, axis=0) if parts else None
    judged = judge(known.to_numpy(float), pairwise(len(names)), names, beyond, in_order=True) if pairs else None
    differences = {}
    for row, (i, j) in enumerate(pairs):
        change = difference_of(judged, row, float(means[i] - means[j]))
        differences[names[i], names[j]], differences[names[j], names[i]] = change, change.turned
    in_order = {(one, other): differences[one, other] for one in names for other in names if one != other}
    return Comparison(best=names[int(means.argmax())], differences=in_order, beyond_seeds=tuple(noise or ()))


def difference_of(judged: Judged | None, row: int, estimate: float) -> Difference:
    """What is judged of a contrast, or its plain estimate where a side has a single run or the runs do not say.

    Args:
        judged: the contrasts.
        row: the contrast's number.
        estimate: the plain difference of the means.
    """
    if judged is None or np.isnan(judged.p[row]):
        return Difference(estimate=estimate, low=None, high=None, p=None)
    estimate, reach, p, inner = (
        float(a[row]) for a in (judged.estimates, judged.reach, judged.p, judged.reach_of_seeds)
    )
    return Difference(estimate=estimate, low=estimate - reach, high=estimate + reach, p=p, of_seeds=inner)
