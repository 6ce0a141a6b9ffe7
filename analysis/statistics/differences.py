"""Differences from con/con over all blocks of a stage: paired tests and intervals.

Differences within one block are judged by `analysis.statistics.comparison`. Seeds are few, so every result states its
n, and every p-value comes with the smallest value that this n allows: an exact two-sided Wilcoxon test of n pairs
cannot go below 2 ** (1 - n), which is 0.25 for three seeds.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.blocks import ALPHA, MODEL_COLUMNS
from analysis.statistics.aggregation import place_of
from sweeps.results import BASELINE, METRICS, PAIRS, TRIPLETS, in_order

MAX_EXACT = 50
"""The signed rank test is exact up to this many pairs; beyond, the normal approximation is as good and much faster."""


def paired_differences(runs: pd.DataFrame) -> pd.DataFrame:
    """Each objective minus con/con, paired by model and seed, for each stage and metric.

    A pair is one seed of one block, and all blocks of a stage are pooled. The results generalise to other seeds of
    these blocks: the interval is for the mean over the blocks and is based on the variation of seeds within a block.
    The null hypothesis is that the objective equals con/con in every block, so a small p may come from a single block.
    Whether an effect holds for other blocks is answered by the ranks and the analysis of variance. Stages are analysed
    separately, because a later stage starts from an earlier one.

    Args:
        runs: runs that count.

    Returns:
        Columns: ``stage``, ``direction``, ``metric``, ``pair``, ``triplet``, ``n`` pairs, ``blocks``, ``difference``
        (mean, in points), ``low`` and ``high`` (95 % t interval; empty without two seeds of a block), ``p`` (two-sided
        Wilcoxon signed rank), ``p_holm`` (Holm over the objectives of the same stage and metric) and ``p_floor`` (the
        smallest ``p`` possible with n pairs).
    """
    rows = []
    for stage, frame in runs.groupby("stage", sort=False):
        pairs, triplets = in_order(frame["pair"], PAIRS), in_order(frame["triplet"], TRIPLETS)
        tests = [metric.test for metric in METRICS.values()]
        wide = frame.pivot(index=[*MODEL_COLUMNS, "seed"], columns=["pair", "triplet"], values=tests)
        for metric in METRICS.values():
            values = wide[metric.test]
            family: list[dict[str, Any]] = []
            for objective in product(pairs, triplets):
                if objective != BASELINE and {objective, BASELINE} <= set(values.columns):
                    differences = (values[objective] - values[BASELINE]).dropna()
                    if len(differences):
                        family.append({"stage": stage} | place_of(metric, objective) | _paired(differences))
            for row, adjusted in zip(family, holm([row["p"] for row in family]), strict=True):
                rows.append(row | {"p_holm": adjusted})
    columns = ["stage", "direction", "metric", "pair", "triplet", "n", "blocks"]
    return pd.DataFrame(rows, columns=[*columns, "difference", "low", "high", "p", "p_holm", "p_floor"])


def can_be_significant(differences: pd.DataFrame) -> bool:
    """Whether any p-value of these rows of :func:`paired_differences` can fall below 5 % after Holm's correction."""
    family = differences.groupby(["stage", "direction", "metric"])["p_floor"]
    return bool((family.min() * family.size() < ALPHA).any())


def _paired(differences: pd.Series[float]) -> dict[str, Any]:
    n, blocks = len(differences), len(_by_block(differences))
    low, high = mean_t_interval(differences)
    return {
        **{"n": n, "blocks": blocks, "difference": float(differences.mean()), "low": low, "high": high},
        **{"p": signed_rank_p(differences), "p_floor": 2.0 ** (1 - n)},
    }


def mean_t_interval(differences: pd.Series[float]) -> tuple[float, float] | tuple[None, None]:
    """95 % t interval of the mean over blocks, for other seeds of the same blocks.

    Args:
        differences: one for each run, indexed by the run's block (in any number of levels) and, last, its seed.

    Returns:
        Its ends; (None, None) unless a block has two seeds.
    """
    n, by_block = len(differences), _by_block(differences)
    free = n - len(by_block)
    if not free:
        return None, None
    # Seeds vary around the mean difference of their own block: variation between blocks is not noise here.
    within = float(((differences - by_block.transform("mean")) ** 2).sum()) / free
    mean, reach = float(differences.mean()), _t_reach(within / n, free)
    return mean - reach, mean + reach


def signed_rank_p(differences: pd.Series[float]) -> float:
    """Two-sided p-value of the signed rank test; zeros are dropped, and ties get their mean rank.

    Up to :data:`MAX_EXACT` pairs it is exact: the null distribution is built by adding one rank at a time with either
    sign, so ties need no approximation (Pratt & Gibbons 1981, "Concepts of Nonparametric Theory",
    chapter 3). With more pairs it is scipy's normal approximation, corrected for ties.
    """
    # Rounded so that ties in the data remain ties despite rounding errors of the subtraction.
    moved = differences.round(9)
    moved = moved[moved != 0]
    if moved.empty:
        return 1.0
    if len(moved) > MAX_EXACT:
        return float(stats.wilcoxon(moved, method="asymptotic").pvalue)
    doubled = (2 * stats.rankdata(moved.abs())).astype(int)
    chance = np.ones(1)
    for rank in doubled:
        chance = 0.5 * (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0)))
    positive, centre = doubled[(moved > 0).to_numpy()].sum(), doubled.sum() / 2
    return float(chance[np.abs(np.arange(len(chance)) - centre) >= abs(positive - centre)].sum())


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment, in the order of the input.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _t_reach(variance: float, df: float) -> float:
    """Half the width of the t interval of a mean with this variance."""
    quantile: float = stats.t.ppf(1 - ALPHA / 2, df)
    return float(quantile * variance**0.5)


def _by_block(values: pd.Series[float]) -> Any:
    return values.groupby(level=list(range(values.index.nlevels - 1)), dropna=False)
