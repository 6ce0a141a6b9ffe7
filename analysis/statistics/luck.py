"""What another search would change: how the choice of each objective's settings varies with the candidates drawn.

The candidates of random search are independent draws, so two halves of them are two searches of half the budget. Half
the mean square of the difference between their choices, over all ways to halve, is the variance of such a search
without bias. (A resample with replacement has the same best candidate in 63 % of all cases, and sees too little.)

Candidates have no test numbers, so the variance is that of the chosen candidate's numbers on val. It contains the noise
by which they were compared and is that of half the budget, so it is rather too large than too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import BlockKey, Objective
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.images import Array
from goal_sweep.analysis.statistics.trails import num_combinations
from goal_sweep.sweeps.results import METRICS, TUNED
from goal_sweep.sweeps.tuning.trail import Candidate, Trail


def luck_of_search(results: SweepResults, key: BlockKey) -> dict[str, pd.DataFrame] | None:
    """The covariance of the objectives of a tuned grid over random searches, by metric; None for other grids.

    An objective has its own variance or their mean, whichever is larger, because one trail says little of it. One whose
    space was tried as a whole has none.
    """
    tune, trails, here = results.header.tune, results.trails_of(key), results.candidates
    if key.grid != TUNED or not trails or tune is None or tune.search != "random":
        return None
    here = here[(here["backbone"] == key.backbone) & (here["stage"] == key.stage)]
    # A candidate that may stop early has several trainings, of which the last goes furthest.
    last = here.drop_duplicates(["pair", "triplet", "candidate", "seed"], keep="last")
    means = last.groupby(["pair", "triplet", "candidate"])[[metric.val for metric in METRICS.values()]].mean()
    scores: dict[Objective, dict[int, Array]] = {}
    for (pair, triplet, number), own in zip(means.index, means.to_numpy(), strict=True):
        scores.setdefault((pair, triplet), {})[number] = own
    known = {
        objective: between_halves(trail, scores[objective])
        for objective, trail in trails.items()
        if objective in scores and len(trail.candidates) == tune.budget < num_combinations(results.header, trail)
    }
    variances = pd.DataFrame(known, list(METRICS)).T.fillna(0.0)
    variances = variances.clip(variances.mean(), axis=1).reindex(pd.MultiIndex.from_tuples(trails), fill_value=0.0)
    return {str(name): pd.DataFrame(np.diag(own), own.index, own.index) for name, own in variances.items()}


def between_halves(trail: Trail, scores: Mapping[int, Array]) -> Array:
    """The variance of the chosen candidate's scores over searches of half the budget, by metric.

    Args:
        trail: the candidates of random search. The sweep's own settings, if they are among them, are in both halves.
        scores: by the candidate's number those by each metric; NaN, of one that failed, counts as the lowest.
            Candidates that are not in it share their trainings with others.
    """
    ranked = [one for one in sorted(trail.candidates, key=_rank, reverse=True) if one.number in scores]
    better = next((place for place, one in enumerate(ranked) if one.default), len(ranked))
    # Where all that are drawn are worse than the default, it is chosen.
    chosen = [*ranked[:better], *ranked[better : better + 1] * (len(ranked) - better - 1)]
    values = np.array([scores[one.number] for one in chosen])
    values, num = np.where(np.isnan(values), np.fmin.reduce(list(scores.values())), values), len(values)
    # The chances that the first 1, 2, ... of the ranked candidates are in the same half.
    together = [(comb(num - n, num // 2) + comb(num - n, num - num // 2)) / comb(num, num // 2) for n in range(1, num)]
    parted = np.asarray(-np.diff([*together, 0.0]))
    variances: Array = 0.5 * parted @ (values[:1] - values[1:]) ** 2
    return variances


def _rank(candidate: Candidate) -> tuple[bool, float]:
    """As the choice ranks candidates: one that failed comes after all others."""
    return candidate.score is not None, candidate.score or 0.0
