"""The one rule, on grids of known differences; its rates of error are in test_noise.py."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from goal_sweep.analysis.statistics.comparison import compare
from goal_sweep.analysis.statistics.spread import _largest_between, judge, pairwise
from goal_sweep.sweeps.results import BASELINE, OBJECTIVES

GENERATOR = np.random.default_rng(3)
COLUMNS = pd.MultiIndex.from_tuples(OBJECTIVES, names=["pair", "triplet"])


def grid(seeds: int = 3, spread: float = 0.3) -> pd.DataFrame:
    """Equal objectives of seeds that share much."""
    values = 50 + 3 * GENERATOR.normal(size=(seeds, 1)) + spread * GENERATOR.normal(size=(seeds, 15))
    return pd.DataFrame(values, columns=COLUMNS, index=range(1, seeds + 1))


def test_a_clear_winner_is_told_apart_and_the_intervals_hold_the_truth() -> None:
    values = grid()
    values["sig", "nca"] += 6
    values["lin", "cir"] += 6
    found = compare(values)
    assert {found.best, *found.level} == {("sig", "nca"), ("lin", "cir")}
    gain = found.differences[("sig", "nca"), BASELINE]
    low, high, p = (float(number or 0.0) for number in (gain.low, gain.high, gain.p))
    assert low < 6 < high
    assert 0 < p < 0.01
    assert gain.told_apart
    assert gain.estimate == pytest.approx((values["sig", "nca"] - values[BASELINE]).mean())
    back = found.differences[BASELINE, ("sig", "nca")]
    assert (back.estimate, back.low, back.high, back.p) == (-gain.estimate, -high, -low, p)
    assert found.from_baseline["sig", "nca"] == gain
    assert found.unjudged == frozenset()


def test_intervals_and_p_values_are_nearly_tukeys_where_spreads_are_equal() -> None:
    values = grid(seeds=6, spread=1.0).to_numpy()
    found = judge(values, pairwise(15), OBJECTIVES)
    assert found is not None
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    error = float(((residuals**2).sum() / (14 * 5) * 2 / 6) ** 0.5)
    tukey = float(stats.studentized_range.ppf(0.95, 15, 14 * 5)) / 2**0.5 * error
    assert float(np.median(found.reach)) == pytest.approx(tukey, rel=0.25)


def test_what_a_seed_does_to_all_objectives_is_not_noise() -> None:
    values = grid()
    moved = values.add(pd.Series([20.0, -30.0, 5.0], index=values.index), axis=0)
    one, other = compare(values), compare(moved)
    assert (one.best, one.level) == (other.best, other.level)
    assert one.differences[("sig", "nca"), BASELINE].high == pytest.approx(
        other.differences[("sig", "nca"), BASELINE].high
    )


def test_a_missing_seed_is_estimated_from_the_others() -> None:
    values = grid()
    values.loc[1] += 20
    values["sig", "nca"] += 6
    values.loc[1, ("sig", "nca")] = np.nan
    difference = compare(values).differences[("sig", "nca"), BASELINE]
    assert difference.estimate == pytest.approx(6, abs=1.5)
    assert difference.told_apart


def test_a_cell_with_one_run_is_not_judged() -> None:
    values = grid()
    values.loc[[1, 2], ("sig", "nca")] = np.nan
    found = compare(values - pd.Series({("sig", "nca"): 9.0}).reindex(COLUMNS, fill_value=0.0))
    assert found.unjudged == {("sig", "nca")}
    single = found.differences[("sig", "nca"), BASELINE]
    assert (single.low, single.high, single.p, single.told_apart) == (None, None, None, False)
    one_seed = compare(grid(seeds=1))
    assert len(one_seed.unjudged) == 14
    assert not one_seed.level


def test_runs_that_share_no_seed_at_all_are_not_judged() -> None:
    values = pd.DataFrame(np.nan, index=range(1, 5), columns=COLUMNS[:2])
    values.iloc[:2, 0], values.iloc[2:, 1] = [50.0, 50.4], [40.0, 40.5]
    assert compare(values).unjudged == {OBJECTIVES[1]}


def test_runs_that_agree_up_to_rounding_are_no_evidence_of_how_runs_differ() -> None:
    values = pd.DataFrame(50.0, index=[1, 2, 3], columns=COLUMNS) + np.array([[0.1], [0.2], [0.4]])
    values["sig", "nca"] += 0.1
    found = compare(values)
    gain = found.differences[("sig", "nca"), BASELINE]
    assert (gain.low, gain.high, gain.p) == (None, None, None)
    assert gain.estimate == pytest.approx(0.1)
    assert len(found.unjudged) == 14


def test_an_unstable_objective_has_a_wide_interval_and_hides_no_difference() -> None:
    values = grid()
    values["sig", "nca"] += 6
    values["lin", "cir"] = [1.0, 44.0, 49.0]
    found = compare(values)
    assert found.best == ("sig", "nca")
    assert found.level == {("lin", "cir")}  # three runs from 1 to 49 say nothing
    own = found.differences[("sig", "nca"), ("lin", "cir")]
    assert own.low is not None
    assert own.high is not None
    assert own.low < 0 < 100 < own.high


def test_nothing_to_compare() -> None:
    empty = compare(grid().iloc[:0])
    assert (empty.best, empty.level, empty.from_baseline) == (None, frozenset(), {})
    alone = compare(grid().iloc[:, :1])
    assert (alone.best, alone.level) == (BASELINE, frozenset())
    assert not alone.differences


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_an_interval_leaves_out_zero_just_where_the_two_are_told_apart(seeds: int) -> None:
    values = pd.DataFrame(np.random.default_rng(seeds).standard_normal((seeds, 15)), columns=OBJECTIVES)
    pair = (OBJECTIVES[4], OBJECTIVES[9])
    for name in pair:
        values[name] += 200.0  # so that no other lies between them
    reach = 50.0  # so far that no steady objective is beside the first, whose error depends on that
    for share in (1.0, 0.9999, 1.0001):
        values[pair[0]] += share * reach - (values[pair[0]] - values[pair[1]]).mean()
        after = compare(values).differences[pair]
        assert after.low is not None
        assert after.told_apart == (after.low > 0) == (share >= 1)
        reach = after.estimate - after.low


PATTERNS = [(1, -1, 0), (-1, 1, 0), (0, 1, -1), (0, -1, 1), (1, 0, -1), (-1, 0, 1)]
HIGHEST, SECOND, LOWEST = OBJECTIVES[0], OBJECTIVES[4], OBJECTIVES[8]  # of different rows and columns


def of_known_spreads(highest: float, means: tuple[float, float, float] = (0.3, 0.0, -3.6)) -> pd.DataFrame:
    """Three seeds of variance 1, but for that of the objective with the highest mean."""
    residuals = np.array([PATTERNS[column % 6] for column in range(15)], float).T
    residuals[:, 0] *= highest**0.5
    values = pd.DataFrame(residuals - 1.8, columns=COLUMNS, index=[1, 2, 3])
    for name, mean in zip((HIGHEST, SECOND, LOWEST), means, strict=True):
        values[name] += 1.8 + mean
    return values


@pytest.mark.parametrize("variance", [2.2, 3.5])
def test_verdicts_between_steady_objectives_follow_the_order_of_the_means(variance: float) -> None:
    found = compare(of_known_spreads(variance)).differences
    wide, narrow = found[HIGHEST, LOWEST], found[SECOND, LOWEST]
    assert narrow.told_apart
    assert wide.p == narrow.p
    assert wide.low is not None
    assert wide.low > 0


def test_an_objective_that_is_not_steady_is_judged_alone() -> None:
    too_noisy = of_known_spreads(8, means=(0.3, 0.0, -4.5))
    alone = of_known_spreads(3.5, means=(2.4, 0.0, -4.5))
    for values in (too_noisy, alone):
        found = compare(values).differences
        assert found[SECOND, LOWEST].told_apart
        assert not found[HIGHEST, LOWEST].told_apart


def test_the_largest_ratio_between_two_is_that_of_a_plain_search() -> None:
    generator, num = np.random.default_rng(0), 6
    for _ in range(50):
        means, counts = (generator.integers(low, high, size=num).astype(float) for low, high in ((0, 5), (2, 4)))
        steady, ratios = generator.random(num) < 0.8, np.zeros((num, num))
        pairs = np.triu_indices(num, 1)
        ratios[pairs] = generator.random(len(pairs[0]))
        ratios += ratios.T
        expected = []
        for one, other in zip(*pairs, strict=True):
            top, low = (one, other) if means[one] > means[other] else (other, one)
            between = [
                ratios[k, m] * (steady[top] and steady[low])
                for k, m in permutations(np.flatnonzero(steady), 2)
                if means[top] >= means[k] > means[m] >= means[low]
                and counts[top] >= counts[k]
                and counts[low] >= counts[m]
            ]
            expected.append(max(between, default=0.0))
        assert _largest_between(ratios[pairs], means, counts, steady) == pytest.approx(np.array(expected))


def test_a_run_that_is_alone_in_its_seed_says_nothing_of_how_runs_differ() -> None:
    values = pd.concat([grid(), grid(seeds=7).set_axis(range(4, 11))])
    values.loc[4:, COLUMNS[1:]] = np.nan
    found, without = compare(values), compare(values.loc[:3])
    for pair, change in found.differences.items():
        assert change.p == without.differences[pair].p
        assert change.low == pytest.approx(without.differences[pair].low)
    values.loc[2:3, BASELINE] = np.nan
    assert compare(values).unjudged | {found.best} >= {BASELINE}


def test_an_objective_of_two_runs_among_more_is_judged_by_a_wide_interval() -> None:
    values = of_known_spreads(1, means=(4.5, 0.0, -0.1))
    assert compare(values).differences[HIGHEST, LOWEST].told_apart
    values.loc[3, HIGHEST] = np.nan
    assert not compare(values).differences[HIGHEST, LOWEST].told_apart


def test_equal_means_keep_their_interval() -> None:
    values = of_known_spreads(1)
    equal = compare(values).differences[OBJECTIVES[3], OBJECTIVES[9]]
    assert equal.estimate == pytest.approx(0, abs=1e-9)
    assert equal.high is not None
    assert equal.high > 2
