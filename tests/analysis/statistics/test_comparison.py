"""The one rule, against a plain computation and on grids of known differences; test_noise.py has its rates."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from goal_sweep.analysis.statistics.comparison import compare, seeds_to_settle, studentized, tail
from goal_sweep.goal_core.evaluation.metrics import OBJECTIVES
from goal_sweep.sweeps.results import BASELINE

GENERATOR = np.random.default_rng(3)
COLUMNS = pd.MultiIndex.from_tuples(OBJECTIVES, names=["pair", "triplet"])
WINNER = ("sig", "nca")


def grid(seeds: int = 3, spread: float = 0.3) -> pd.DataFrame:
    """Equal objectives of seeds that share much."""
    values = 50 + 3 * GENERATOR.normal(size=(seeds, 1)) + spread * GENERATOR.normal(size=(seeds, 15))
    return pd.DataFrame(values, columns=COLUMNS, index=range(1, seeds + 1))


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_intervals_and_p_are_those_of_a_plain_computation(seeds: int) -> None:
    values = grid(seeds)
    values["lin", "cir"] = values["lin", "cir"] + 2.0 * GENERATOR.normal(size=seeds)
    noise = np.diag(GENERATOR.random(15))
    found = compare(values, pd.DataFrame(noise, COLUMNS, COLUMNS)).differences
    runs, df = values.to_numpy(), 14 * (seeds - 1)
    residuals = runs - runs.mean(axis=0) - runs.mean(axis=1, keepdims=True) + runs.mean()
    pooled = (residuals**2).sum() / df
    used = [max((residuals[:, k] ** 2).sum() / (seeds - 1) * 15 / 14, pooled) for k in range(15)]
    assert max(used) > pooled
    quantile = float(stats.studentized_range.ppf(0.95, 15, df))
    for i, j in combinations(range(15), 2):
        error = ((used[i] + used[j]) / 2 / seeds + (noise[i, i] + noise[j, j]) / 2) ** 0.5
        change = found[OBJECTIVES[i], OBJECTIVES[j]]
        assert change.estimate == pytest.approx(runs[:, i].mean() - runs[:, j].mean())
        assert change.reach == pytest.approx(quantile * error, rel=2e-3)
        if (i, j) in ((0, 1), (13, 14)):  # scipy is slow
            p = float(stats.studentized_range.sf(abs(change.estimate) / error, 15, df))
            assert change.p == pytest.approx(p, rel=5e-3)


@pytest.mark.parametrize(("groups", "df"), [(2, 1), (3, 2), (15, 28), (40, 156)])
def test_the_distribution_is_that_of_scipy(groups: int, df: int) -> None:
    ratios = np.array([0.01, 0.7, 2.0, 5.0, studentized(groups, df)[1], 1e6])
    expected = [*stats.studentized_range.sf(ratios[1:4], groups, df), 0.05]
    assert tail(ratios, groups, df)[1:5] == pytest.approx(expected, rel=2e-3)
    assert float(stats.studentized_range.sf(ratios[4], groups, df)) == pytest.approx(0.05, rel=2e-3)


def test_a_clear_winner_is_significant_and_the_intervals_hold_the_truth() -> None:
    values = grid()
    values[WINNER] += 6
    values["lin", "cir"] += 6
    found = compare(values)
    assert {found.best, *found.near} == {WINNER, ("lin", "cir")}
    gain, back = found.differences[WINNER, BASELINE], found.differences[BASELINE, WINNER]
    assert gain.low < 6 < gain.high
    assert (gain.verdict, back.verdict) == ("better", "worse")
    assert (back.estimate, back.reach, back.p) == (-gain.estimate, gain.reach, gain.p)
    assert found.from_baseline[WINNER] == gain
    assert found.untested == frozenset()


def test_with_missing_runs_differences_are_those_of_the_printed_means() -> None:
    values = grid()
    values[WINNER] = values.mean(axis=1) + 6  # with the pooled spread, because its own is small
    values.loc[1, WINNER], values.loc[2, ("lin", "cir")] = np.nan, np.nan
    found, means = compare(values), values.mean()
    assert found.best == means.idxmax() == WINNER
    for one, other in combinations(OBJECTIVES, 2):
        assert found.differences[one, other].estimate == pytest.approx(means[one] - means[other])
    assert found.differences[WINNER, BASELINE].verdict == "better"
    squares = found.reach**2
    of_means = [(squares[k, k - 1] + squares[k, k - 2] - squares[k - 1, k - 2]) / 2 for k in range(15)]
    assert 2 * of_means[OBJECTIVES.index(WINNER)] == pytest.approx(3 * min(of_means))  # n_k of 2 and 3


def test_a_cell_with_one_run_is_not_tested() -> None:
    values = grid()
    values.loc[[1, 2], WINNER] = np.nan
    values[WINNER] += 9
    found = compare(values)
    assert (found.best, len(found.untested)) == (WINNER, 14)
    assert np.isnan(found.differences[WINNER, BASELINE].p)
    assert found.differences[OBJECTIVES[1], BASELINE].verdict == "not significant"
    one_seed = compare(grid(seeds=1))
    assert len(one_seed.untested) == 14
    assert not one_seed.is_tested


def test_runs_that_share_no_seed_are_not_tested() -> None:
    values = pd.DataFrame(np.nan, index=range(1, 5), columns=COLUMNS[:4])
    values.iloc[:2, :2], values.iloc[2:, 2:] = [[50.0, 52.1], [50.4, 52.0]], [[40.0, 40.3], [40.5, 40.1]]
    found = compare(values).differences
    assert found[OBJECTIVES[0], OBJECTIVES[2]].verdict == "not tested"
    assert found[OBJECTIVES[0], OBJECTIVES[1]].verdict != "not tested"


def test_runs_that_agree_up_to_rounding_are_no_evidence_of_how_runs_differ() -> None:
    values = pd.DataFrame(50.0, index=[1, 2, 3], columns=COLUMNS) + np.array([[0.1], [0.2], [0.4]])
    values[WINNER] += 0.1
    above = np.nextafter(0.3, 1)  # so that the variance of a difference is a little below 0
    covariance = pd.DataFrame(np.where(np.eye(len(COLUMNS)), 0.3, above), COLUMNS, COLUMNS)
    for images in (None, covariance, covariance + np.eye(len(COLUMNS))):
        found = compare(values, images)
        assert found.differences[WINNER, BASELINE].estimate == pytest.approx(0.1)
        assert len(found.untested) == 14


def test_a_run_that_is_alone_in_its_seed_says_nothing_of_how_runs_differ() -> None:
    values = pd.concat([grid(), grid(seeds=7).set_axis(range(4, 11))])
    values.loc[4:, COLUMNS[1:]] = np.nan
    found, without = compare(values), compare(values.loc[:3])
    assert found.reach[1:, 1:] == pytest.approx(without.reach[1:, 1:], nan_ok=True)
    assert (found.reach[0, 1:] < without.reach[0, 1:]).all()  # but its mean is one of more runs


def test_nothing_to_compare() -> None:
    empty = compare(grid().iloc[:0])
    assert (empty.best, empty.near, empty.from_baseline, empty.is_tested) == (None, frozenset(), {}, False)
    alone = compare(grid().iloc[:, :1])
    assert (alone.best, alone.near, alone.differences) == (BASELINE, frozenset(), {})


@pytest.mark.parametrize("size", [0.3, 0.6, 1.2])
def test_the_seeds_that_settle_two_objectives_are_those_of_a_paired_t_interval(size: float) -> None:
    changes, base = size + np.array([-1.2, 0.1, 0.4, 0.7]), np.array([3.0, 1.0, 2.0, 5.0])
    found = compare(pd.DataFrame({"a": base + changes, "b": base}))
    n, std = 4, float(changes.std(ddof=1))
    while float(stats.t.ppf(0.975, n - 1)) * std / n**0.5 >= changes.mean():
        n += 1
    assert n > 4
    assert seeds_to_settle(found, "a", "b") == seeds_to_settle(found, "b", "a") == n - 4


def test_the_seeds_that_settle_two_of_many_objectives_are_the_fewest() -> None:
    values, noise = grid(spread=0.6), np.diag(np.full(15, 0.01))
    values -= values.mean()
    values[WINNER] += 1.0
    found = compare(values, pd.DataFrame(noise, COLUMNS, COLUMNS))
    more = seeds_to_settle(found, WINNER, BASELINE)
    assert more is not None
    spreads = sum(found.spreads[found.names.index(name)] for name in (WINNER, BASELINE))
    for further, is_settled in ((more, True), (more - 1, False)):
        n = 3 + further
        quantile = float(stats.studentized_range.ppf(0.95, 15, 14 * (n - 1)))
        assert (quantile * ((spreads / n + 0.02) / 2) ** 0.5 < 1.0) == is_settled
    assert seeds_to_settle(found, WINNER, BASELINE, at_most=more) == more
    assert seeds_to_settle(found, WINNER, BASELINE, at_most=more - 1) is None


def test_no_number_of_seeds_settles_what_is_settled_equal_or_untested() -> None:
    values = grid()
    values -= values.mean()
    values[WINNER] += 9.0
    assert seeds_to_settle(compare(values), WINNER, BASELINE) is None
    values[WINNER] = values[BASELINE]
    assert seeds_to_settle(compare(values), WINNER, BASELINE) is None
    values[WINNER] += 0.1
    few_images = pd.DataFrame(np.eye(15), COLUMNS, COLUMNS)
    assert seeds_to_settle(compare(values, few_images), WINNER, BASELINE) is None
    assert seeds_to_settle(compare(values.iloc[:1]), WINNER, BASELINE) is None
