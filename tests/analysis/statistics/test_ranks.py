"""Ranks, against another library and against data of known effects."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from scipy import stats

from analysis.statistics.ranks import rank_objectives

DRAWN = np.random.default_rng(7)


def table(num_blocks: int, num_objectives: int, effect: float = 0.0) -> pd.DataFrame:
    noise = DRAWN.normal(size=(num_blocks, num_objectives)) + DRAWN.normal(size=(num_blocks, 1)) * 5
    columns = [f"o{i:02d}" for i in range(num_objectives)]
    return pd.DataFrame(noise + effect * np.arange(num_objectives), columns=columns)


def test_ranks_and_nemenyi_agree_with_scikit_posthocs() -> None:
    means = table(8, 6, effect=0.4)
    ours = rank_objectives(means)
    assert ours is not None
    theirs = scikit_posthocs.posthoc_nemenyi_friedman(means)
    names = list(ours.mean_ranks)
    for one, other in product(names, names):
        assert ours.p_between(one, other) == pytest.approx(theirs.loc[one, other], abs=1e-6)
    assert ours.friedman == pytest.approx(stats.friedmanchisquare(*means.to_numpy().T).statistic)
    # Demšar 2006, table 5: the critical value for 5 classifiers at 5 % is 2.728.
    five = rank_objectives(table(14, 5))
    assert five is not None
    assert five.critical_difference == pytest.approx(2.728 * (5 * 6 / (6 * 14)) ** 0.5, rel=1e-3)


def test_ties_share_ranks_and_blocks_with_gaps_are_left_out() -> None:
    means = pd.DataFrame({"a": [3.0, 3.0, 3.0, 9.0], "b": [3.0, 3.0, 3.0, 1.0], "c": [1.0, 1.0, 1.0, np.nan]})
    ranks = rank_objectives(means)
    assert ranks is not None
    assert ranks.num_blocks == 3
    assert ranks.mean_ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert rank_objectives(means.iloc[:2]) is None


def test_ranks_reject_a_true_null_no_more_often_than_stated() -> None:
    rejected = [bool(ranks.p < 0.05) for _ in range(300) if (ranks := rank_objectives(table(10, 4)))]
    assert len(rejected) == 300
    assert np.mean(rejected) < 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
