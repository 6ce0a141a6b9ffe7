"""Effects, against data of known effects; and marginal means."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from goal_sweep.analysis.statistics.effects import factor_effects, marginals
from goal_sweep.analysis.wording import p_equation
from goal_sweep.sweeps.results import PAIRS, TRIPLETS
from tests.helpers.results_cases import counted_runs

DRAWN = np.random.default_rng(7)


def subjects(num: int, pair: float = 0.0, triplet: float = 0.0) -> pd.DataFrame:
    rows = []
    for subject in range(num):
        base = DRAWN.normal() * 3
        for (p, a), (t, b) in product(enumerate(PAIRS), enumerate(TRIPLETS)):
            rows.append((str(subject), a, b, base + pair * p + triplet * t + DRAWN.normal()))
    return pd.DataFrame(rows, columns=["subject", "pair", "triplet", "value"])


def test_effects_find_what_is_there_and_not_what_is_not() -> None:
    found = {"pair": 0, "triplet": 0, "pair:triplet": 0}
    runs = 100
    for _ in range(runs):
        for effect in factor_effects(subjects(5, pair=1.0)):
            found[effect.name] += effect.p < 0.05
    assert found["pair"] > 0.95 * runs
    limit = runs * (0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5)
    assert found["triplet"] < limit
    assert found["pair:triplet"] < limit


def test_an_effect_beyond_all_noise_is_printed() -> None:
    data = subjects(4, pair=1.0, triplet=1.0)
    noise = DRAWN.normal(size=len(data)) * 1e-6
    steps = data["pair"].map(PAIRS.index) + data["triplet"].map(TRIPLETS.index) * data["pair"].map(PAIRS.index)
    effects = factor_effects(data.assign(value=steps + noise))
    assert [effect.name for effect in effects] == ["pair", "triplet", "pair:triplet"]
    assert [p_equation(effect.p) for effect in effects] == ["p < 0.001"] * 3


def test_subjects_that_agree_to_the_last_digit_judge_no_effect() -> None:
    rows = [(str(s), a, b, 50.0 + s + 2 * (a == "sig")) for s, a, b in product(range(3), PAIRS, TRIPLETS)]
    effects = factor_effects(pd.DataFrame(rows, columns=["subject", "pair", "triplet", "value"]))
    assert [p_equation(effect.p) for effect in effects] == ["not judged"] * 3


def test_subjects_with_a_gap_are_left_out_and_one_is_too_few() -> None:
    data = subjects(3)
    assert factor_effects(data.iloc[1:])[0].subjects == 2
    assert factor_effects(data[data["subject"] == "0"]) == ()
    assert factor_effects(data[data["pair"] == "con"]) == ()


def steps() -> pd.DataFrame:
    """Larger with each weight and seed, by steps that tell them apart."""
    return counted_runs(lambda _, seed, p, t: 40 + p + 0.1 * t + 0.01 * seed * (p + 1))


def of_pairs(runs: pd.DataFrame) -> pd.DataFrame:
    frame = marginals(runs)
    return frame[frame["factor"] == "pair"]


def test_marginals_average_within_seeds_first() -> None:
    frame = of_pairs(steps())
    row = frame[(frame["level"] == "sig") & (frame["metric"] == "rsum")].iloc[0]
    assert row["mean"] == pytest.approx(40 + 2 + 0.1 + 0.01 * 2 * 3)
    assert row["std"] == pytest.approx(0.03)
    assert row["n"] == 3
    assert list(frame["level"].unique()) == list(PAIRS)


def test_marginals_leave_out_a_seed_that_lacks_a_cell() -> None:
    frame = steps()
    hole = (frame["pair"] == "sig") & (frame["triplet"] == "cir") & (frame["seed"] == 2)
    result = of_pairs(frame[~hole])
    assert result.groupby("level")["n"].first().to_dict() == {**dict.fromkeys(PAIRS, 3), "sig": 2}
    gone = of_pairs(frame[(frame["pair"] != "sig") | (frame["triplet"] != "cir")])
    assert gone.groupby("level")["n"].first().to_dict() == {**dict.fromkeys(PAIRS, 3), "sig": 0}
    assert gone[gone["level"] == "sig"]["mean"].isna().all()


def test_marginals_of_nothing_are_empty() -> None:
    assert marginals(steps()[:0]).empty
