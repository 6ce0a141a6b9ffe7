"""Paired tests and intervals, against enumeration, scipy, and data of known differences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics.differences import can_be_significant, holm, mean_t_interval, paired_differences, signed_rank_p
from tests.helpers.results_cases import counted_runs

DRAWN = np.random.default_rng(7)


def steps(seeds: int = 3, blocks: tuple[str, ...] = ("d",)) -> pd.DataFrame:
    """Larger with each weight and seed, by steps that tell them apart."""
    return counted_runs(lambda _, seed, p, t: 40 + p + 0.1 * t + 0.01 * seed * (p + 1), seeds, blocks)


def signed_rank_by_enumeration(values: Sequence[float]) -> float:
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
    assert signed_rank_p(pd.Series(values, dtype=float)) == pytest.approx(signed_rank_by_enumeration(values))


def test_signed_rank_reaches_its_floor_and_not_below() -> None:
    assert signed_rank_p(pd.Series([0.1, 0.2, 0.3])) == pytest.approx(0.25)
    assert signed_rank_p(pd.Series([0.1, 0.2, 0.3, 0.4, 0.5])) == pytest.approx(0.0625)


def test_signed_rank_of_many_pairs_agrees_with_the_exact_one() -> None:
    drawn = pd.Series(np.random.default_rng(5).normal(0.3, 1.0, size=60))
    exact = stats.wilcoxon(drawn, method="exact").pvalue
    assert 0.001 < exact < 0.9
    assert signed_rank_p(drawn) == pytest.approx(exact, rel=0.03)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_differences_are_paired_by_model_and_seed() -> None:
    frame = steps(blocks=("d", "e"))
    hole = (frame["pair"] == "con") & (frame["triplet"] == "con") & (frame["seed"] == 2) & (frame["dataset"] == "e")
    result = paired_differences(frame[~hole])
    row = result[(result["pair"] == "lin") & (result["triplet"] == "nca") & (result["metric"] == "R@5")].iloc[0]
    assert (row["n"], row["blocks"]) == (5, 2)
    assert row["difference"] == pytest.approx(np.mean([1.1 + 0.01 * s for s in (1, 2, 3, 1, 3)]))
    assert row["low"] < row["difference"] < row["high"]
    assert row["p"] == row["p_floor"] == pytest.approx(0.0625)
    assert row["p_holm"] == pytest.approx(14 * 0.0625)
    assert len(result) == 14 * 7


def test_one_pair_has_no_interval_and_no_baseline_no_rows() -> None:
    single = paired_differences(steps(seeds=1))
    assert single["low"].isna().all()
    assert set(single["p"]) == {1.0}
    frame = steps()
    assert paired_differences(frame[frame["pair"] != "con"]).empty
    assert paired_differences(frame[:0]).empty


def test_few_pairs_cannot_be_significant_and_many_can() -> None:
    assert not can_be_significant(paired_differences(steps()))
    assert can_be_significant(paired_differences(steps(blocks=("a", "b", "c", "d"))))


def test_differences_over_blocks_that_differ_are_covered_as_often_as_stated() -> None:
    covered, runs = 0, 300
    for _ in range(runs):
        truth = DRAWN.normal(size=5)  # of each block
        values = truth[:, None] + 0.3 * DRAWN.normal(size=(5, 3))
        index = pd.MultiIndex.from_product([[f"b{i}" for i in range(5)], range(3)])
        low, high = mean_t_interval(pd.Series(values.ravel(), index=index))
        assert low is not None
        covered += low <= truth.mean() <= high
    assert abs(covered / runs - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5
