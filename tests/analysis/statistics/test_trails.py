from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis.statistics.trails import budget_curve, edge, expected_best, position
from sweeps.tuning import Dimension
from sweeps.tuning.block import Domain
from sweeps.tuning.trail import Trail
from tests.helpers.tuned_cases import candidate, trail

SCORES = [3.0, 1.0, 4.0, 1.0, 5.0]


@pytest.mark.parametrize("first", [None, 2.0])
@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_the_closed_form_is_the_mean_over_all_draws(budget: int, first: float | None) -> None:
    drawn = budget if first is None else budget - 1
    best = [max([*draw, *([] if first is None else [first])]) for draw in product(SCORES, repeat=drawn)]
    mean, spread = expected_best(np.array(SCORES), budget, first)
    assert len(mean) == budget
    assert mean[-1] == pytest.approx(np.mean(best))
    assert spread[-1] == pytest.approx(np.std(best))


def _trail(scores: list[float | None], *, default: bool = False) -> Trail:
    values = {"tau": 2.0, "margin": 0.1, "lr": 0.004}
    candidates = tuple(
        candidate(n, values, score, failed="" if score is not None else "NaN", default=default and n == 0)
        for n, score in enumerate(scores)
    )
    return replace(trail("sig-ms/cir", 1), candidates=candidates, chosen=None)


def test_a_curve_of_random_search_has_a_band_within_the_scores_seen() -> None:
    curve = budget_curve(_trail([3.0, 1.0, 4.0, 1.0, 5.0]), "random")
    mean, spread = expected_best(np.array(SCORES), 5)
    assert list(curve["best"]) == pytest.approx(mean)
    assert list(curve["high"]) == pytest.approx(np.minimum(mean + spread, 5.0))
    assert list(curve["low"]) == pytest.approx(np.maximum(mean - spread, 1.0))


def test_the_default_is_always_tried_first() -> None:
    curve = budget_curve(_trail([2.0, *SCORES], default=True), "random")
    assert [*curve.iloc[0]] == [1.0, 2.0, 2.0, 2.0]
    assert curve.loc[1, "best"] == pytest.approx(np.mean([3, 2, 4, 2, 5]))


def test_a_candidate_without_a_score_counts_as_the_lowest() -> None:
    curve = budget_curve(_trail([3.0, None, 4.0, 1.0, 5.0]), "random")
    assert list(curve["best"]) == pytest.approx(expected_best(np.array(SCORES), 5)[0])
    assert budget_curve(_trail([None, None]), "random").empty


def test_tpe_shows_the_best_so_far_and_no_band() -> None:
    curve = budget_curve(_trail(list(SCORES)), "tpe")
    for name in ("best", "low", "high"):
        assert curve[name].tolist() == [3.0, 3.0, 4.0, 4.0, 5.0]


TAU = Domain(loguniform=(1.0, 100.0))
MARGIN = Domain(uniform=(0.0, 1.0))
LR = Domain(choice=(0.002, 0.004, 0.008))
WIDE = Domain(choice=(0.001, 0.01, 0.1))


@pytest.mark.parametrize(
    ("domain", "value", "at", "where"),
    [
        (TAU, 10.0, 0.5, ""),
        (TAU, 1.2, 0.0396, "lower edge"),
        (TAU, 90.0, 0.977, "upper edge"),
        (TAU, 200.0, 1.15, "above the range"),
        (MARGIN, 0.3, 0.3, ""),
        (MARGIN, 0.96, 0.96, "upper edge"),
        (MARGIN, -0.1, -0.1, "below the range"),
        (LR, 0.002, 0.0, "lower edge"),
        (LR, 0.004, 1 / 3, ""),
        (LR, 0.008, 1.0, "upper edge"),
        (WIDE, 0.01, 0.5, ""),
        (Domain(choice=(1, 2)), 2, 1.0, ""),
        (Domain(choice=("paper", "released")), "paper", None, ""),
        (Domain(choice=(True, False)), True, None, ""),
    ],
)
def test_where_a_choice_lies_in_its_range(domain: Domain, value: Any, at: float | None, where: str) -> None:
    dimension = Dimension(key="objectives.params.tau", domain=domain)
    assert position(dimension, value) == (None if at is None else pytest.approx(at, abs=2e-3))
    assert edge(dimension, value) == where
