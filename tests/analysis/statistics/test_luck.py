"""What another search would change, against all ways to halve a trail and against searches that were repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from goal_sweep.analysis.statistics.aggregation import aggregate
from goal_sweep.analysis.statistics.luck import between_halves, luck_of_search
from goal_sweep.sweeps.results import METRICS
from goal_sweep.sweeps.tuning.trail import Trail
from tests.helpers.tuned_cases import TUNE, candidate, trail, tuned_sweep

SCORES = (3.0, 1.0, 4.0, 1.5, 5.0, 2.0, 0.5)
OTHER = (10.0, 30.0, 20.0, 10.0, 50.0, 40.0, 60.0)
"""Another metric of the same candidates, by which nothing is chosen."""


def of(scores: Sequence[float | None], default: int | None = None) -> Trail:
    tried = [candidate(n, {}, score, default=n == default) for n, score in enumerate(scores)]
    return replace(trail("sig/nca", 1), candidates=tuple(tried))


@pytest.mark.parametrize("number", range(2, 8))
@pytest.mark.parametrize("default", [None, 0, 2])
def test_the_closed_form_is_the_mean_over_all_ways_to_halve(number: int, default: int | None) -> None:
    if default is not None and default >= number:
        return
    drawn = [n for n in range(number) if n != default]
    always = [] if default is None else [default]
    changes = []
    for half in combinations(drawn, len(drawn) // 2):
        rest = [n for n in drawn if n not in half]
        one, other = (max([*always, *own], key=SCORES.__getitem__, default=0) for own in (half, rest))
        changes.append([(numbers[one] - numbers[other]) ** 2 / 2 for numbers in (SCORES, OTHER)])
    scores = dict(enumerate(np.transpose([SCORES, OTHER])[:number]))
    if len(drawn) > 1:
        assert between_halves(of(SCORES[:number], default), scores) == pytest.approx(np.mean(changes, axis=0))


def test_the_variance_is_that_of_searches_of_half_the_budget() -> None:
    drawn = np.random.default_rng(1).gumbel(size=(4000, 16))
    found = [between_halves(of(own), dict(enumerate(np.array(own)[:, None]))) for own in drawn[:400].tolist()]
    assert np.mean(found) == pytest.approx(drawn[:, :8].max(axis=1).var(), rel=0.15)


def test_a_tuned_grid_counts_searches_and_a_space_that_was_tried_as_a_whole_has_no_luck() -> None:
    whole = tuple(candidate(n, {"lr": lr}, 300.0 + n) for n, lr in enumerate((0.002, 0.004, 0.008)))
    listed = trail("con/con", names=("lr",), candidates=whole, chosen=2)
    writer = tuned_sweep([listed, trail("sig/nca"), trail("sig-ms/cir")], TUNE)
    default, tuned = aggregate(writer.results())
    assert (default.grids["rsum"].comparison.beyond_seeds, luck_of_search(writer.results(), default.key)) == ((), None)
    assert tuned.grids["rsum"].comparison.beyond_seeds == ("searches",)
    luck = luck_of_search(writer.results(), tuned.key)
    assert luck is not None
    assert set(luck) == set(METRICS)
    own = pd.Series(np.diag(luck["rsum"]), luck["rsum"].index)
    assert own["con", "con"] == 0
    assert own["sig", "nca"] > 0
    tpe = tuned_sweep([trail("sig/nca"), trail("con/nca")], replace(TUNE, search="tpe")).results()
    assert luck_of_search(tpe, tuned.key) is None
