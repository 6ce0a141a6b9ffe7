from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics.paired import _wilcoxon, holm, marginals, paired_differences
from analysis.tracking.run_schema import PAIRS, TEST_METRICS, TRIPLETS


def runs(seeds: int = 3, backbones: tuple[str, ...] = ("r",)) -> pd.DataFrame:
    rows = []
    for backbone, seed, (p, pair), (t, triplet) in itertools.product(
        backbones, range(1, seeds + 1), enumerate(PAIRS), enumerate(TRIPLETS)
    ):
        value = 40 + p + 0.1 * t + 0.01 * seed * (p + 1)
        row = {"dataset": "d", "framework": "f", "backbone": backbone, "variant": "paper", "data_fingerprint": "x"}
        row |= {"stage": "frozen", "pair": pair, "triplet": triplet, "seed": seed}
        rows.append(row | dict.fromkeys(TEST_METRICS, value))
    return pd.DataFrame(rows)


def signed_rank_by_enumeration(values: list[float]) -> float:
    """All 2^n sign patterns, by definition."""
    moved = [v for v in values if v != 0]
    if not moved:
        return 1.0
    size = np.abs(moved)
    ranks = [(size < a).sum() + ((size == a).sum() + 1) / 2 for a in size]
    centre = sum(ranks) / 2
    seen = abs(sum(r for r, v in zip(ranks, moved, strict=True) if v > 0) - centre)
    signs = itertools.product((0, 1), repeat=len(moved))
    return float(np.mean([abs(np.dot(s, ranks) - centre) >= seen - 1e-9 for s in signs]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_signed_rank_is_exact_with_ties_and_zeros(values: list[int]) -> None:
    assert _wilcoxon(pd.Series(values, dtype=float)) == pytest.approx(signed_rank_by_enumeration(values))


def test_signed_rank_reaches_its_floor_and_not_below() -> None:
    assert _wilcoxon(pd.Series([0.1, 0.2, 0.3])) == pytest.approx(0.25)
    assert _wilcoxon(pd.Series([0.1, 0.2, 0.3, 0.4, 0.5])) == pytest.approx(0.0625)


def test_signed_rank_of_many_pairs_agrees_with_the_exact_one() -> None:
    drawn = pd.Series(np.random.default_rng(5).normal(0.3, 1.0, size=60))
    exact = stats.wilcoxon(drawn, method="exact").pvalue
    assert 0.001 < exact < 0.9
    assert _wilcoxon(drawn) == pytest.approx(exact, rel=0.03)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_marginals_average_within_seeds_first() -> None:
    frame = marginals(runs(), "pair")
    row = frame[(frame["level"] == "sig") & (frame["metric"] == "rsum")].iloc[0]
    assert row["mean"] == pytest.approx(40 + 2 + 0.1 + 0.01 * 2 * 3)
    assert row["std"] == pytest.approx(0.03)
    assert row["n"] == 3
    assert list(frame["level"].unique()) == list(PAIRS)


def test_marginals_leave_out_a_seed_that_lacks_a_cell() -> None:
    frame = runs()
    hole = (frame["pair"] == "sig") & (frame["triplet"] == "cir") & (frame["seed"] == 2)
    result = marginals(frame[~hole], "pair")
    assert result.groupby("level")["n"].first().to_dict() == {**dict.fromkeys(PAIRS, 3), "sig": 2}
    gone = marginals(frame[(frame["pair"] != "sig") | (frame["triplet"] != "cir")], "pair")
    assert gone.groupby("level")["n"].first().to_dict() == {**dict.fromkeys(PAIRS, 3), "sig": 0}
    assert gone[gone["level"] == "sig"]["mean"].isna().all()


def test_differences_are_paired_by_model_and_seed() -> None:
    frame = runs(backbones=("r", "s"))
    hole = (frame["pair"] == "con") & (frame["triplet"] == "con") & (frame["seed"] == 2) & (frame["backbone"] == "s")
    result = paired_differences(frame[~hole])
    row = result[(result["pair"] == "lin") & (result["triplet"] == "nca") & (result["metric"] == "R@5")].iloc[0]
    assert (row["n"], row["blocks"]) == (5, 2)
    assert row["difference"] == pytest.approx(np.mean([1.1 + 0.01 * s for s in (1, 2, 3, 1, 3)]))
    assert row["low"] < row["difference"] < row["high"]
    assert row["p"] == row["p_floor"] == pytest.approx(0.0625)
    assert row["p_holm"] == pytest.approx(14 * 0.0625)
    assert len(result) == 14 * 7


def test_one_pair_has_no_interval_and_no_baseline_no_rows() -> None:
    single = paired_differences(runs(seeds=1))
    assert single["low"].isna().all()
    assert set(single["p"]) == {1.0}
    frame = runs()
    assert paired_differences(frame[frame["pair"] != "con"]).empty
    assert paired_differences(frame[:0]).empty
    assert marginals(frame[:0], "triplet").empty
