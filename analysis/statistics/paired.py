"""What the differences in a grid are worth: marginal means, and paired tests against the baseline objective.

Seeds are few, so nothing here is stated without its n, and with the smallest p-value that this n can reach at all:
an exact two-sided Wilcoxon test of n pairs cannot go below 2 ** (1 - n), which is 0.25 for three seeds.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.tracking.run_schema import BASELINE, COLUMNS, PAIRS, TRIPLETS, in_order, metric_key

MAX_EXACT = 50
"""Pairs up to which the signed rank test is exact; beyond, the normal approximation is as good and far quicker."""

_BLOCK = ["dataset", "framework", "backbone", "variant", "data_fingerprint", "stage"]


def marginals(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Mean over the other weight, for each block, direction, metric and level of ``factor``.

    The other weight is averaged within each seed first, and the mean and standard deviation are over seeds; a seed
    that lacks one of the cells of a level is left out of that level, so that levels are compared on equal terms.

    Args:
        runs: runs that count, as :func:`analysis.statistics.aggregate.counted` gives them.
        factor: ``pair`` or ``triplet``.

    Returns:
        Columns: the block, ``direction``, ``metric``, ``factor``, ``level``, ``mean``, ``std`` (ddof=1), ``n`` seeds;
        a level of which no seed is whole has n = 0 and no mean.
    """
    other, known = ("triplet", PAIRS) if factor == "pair" else ("pair", TRIPLETS)
    rows = []
    for block, frame in runs.groupby(_BLOCK, sort=True):
        num_other = frame[other].nunique()
        names = [metric_key(direction, metric) for direction, metric in COLUMNS]
        levels = in_order(frame[factor], known)
        by_seed = {
            level: frame[frame[factor] == level].groupby("seed")[names].agg(["mean", "count"]) for level in levels
        }
        for direction, metric in COLUMNS:
            name = metric_key(direction, metric)
            for level in levels:
                here = by_seed[level][name]
                values = here.loc[here["count"] == num_other, "mean"]
                row = dict(zip(_BLOCK, block, strict=True)) | {"direction": direction, "metric": metric}
                row |= {"factor": factor, "level": level}
                rows.append(row | {"mean": values.mean(), "std": values.std(ddof=1), "n": len(values)})
    columns = [*_BLOCK, "direction", "metric", "factor", "level", "mean", "std", "n"]
    return pd.DataFrame(rows, columns=columns)


def paired_differences(runs: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Each objective minus con/con, paired by model and seed, for each stage, direction and metric.

    A pair is one seed of one block, and all blocks of a stage are pooled. All of it speaks of other seeds of these
    blocks: the interval is of the mean over them, from how seeds vary within a block, and the test's null is that the
    objective equals con/con in every block, so where blocks differ a small p may come from one of them. Whether an
    effect holds for other blocks is the ranks' and the analysis of variance's to say. Stages are kept apart, since a
    later one starts from the earlier.

    Returns:
        Columns: ``stage``, ``direction``, ``metric``, ``pair``, ``triplet``, ``n`` pairs, ``blocks``, ``difference``
        (mean, in points), ``low`` and ``high`` (t interval), ``p`` (two-sided Wilcoxon signed rank),
        ``p_holm`` (Holm over the objectives of the same stage, direction and metric) and ``p_floor`` (the smallest
        ``p`` that n pairs can give). Without two seeds of a block the interval
        is empty.
    """
    rows = []
    place = [*(name for name in _BLOCK if name != "stage"), "seed"]
    for stage, frame in runs.groupby("stage", sort=False):
        pairs, triplets = in_order(frame["pair"], PAIRS), in_order(frame["triplet"], TRIPLETS)
        wide = frame.pivot(index=place, columns=["pair", "triplet"], values=[metric_key(*column) for column in COLUMNS])
        for direction, metric in COLUMNS:
            values = wide[metric_key(direction, metric)]
            family: list[dict[str, Any]] = []
            for pair, triplet in product(pairs, triplets):
                if (pair, triplet) != BASELINE and {(pair, triplet), BASELINE} <= set(values.columns):
                    differences = (values[pair, triplet] - values[BASELINE]).dropna()
                    row = {"stage": stage, "direction": direction, "metric": metric, "pair": pair, "triplet": triplet}
                    if len(differences):
                        family.append(row | _paired(differences, confidence))
            for row, adjusted in zip(family, holm([row["p"] for row in family]), strict=True):
                rows.append(row | {"p_holm": adjusted})
    columns = ["stage", "direction", "metric", "pair", "triplet", "n", "blocks"]
    return pd.DataFrame(rows, columns=[*columns, "difference", "low", "high", "p", "p_holm", "p_floor"])


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment, in the order of the input.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _paired(differences: pd.Series[float], confidence: float) -> dict[str, Any]:
    n, mean, p = len(differences), float(differences.mean()), _wilcoxon(differences)
    by_block = differences.groupby(level=list(range(differences.index.nlevels - 1)), dropna=False)
    blocks = by_block.ngroups
    low = high = None
    if n > blocks:
        # Seeds vary around their own block's difference: how much the blocks differ is no noise of these blocks.
        within = float(((differences - by_block.transform("mean")) ** 2).sum()) / (n - blocks)
        reach = float(stats.t.ppf(0.5 + confidence / 2, n - blocks)) * (within / n) ** 0.5
        low, high = mean - reach, mean + reach
    result = {"n": n, "blocks": blocks, "difference": mean, "low": low, "high": high}
    return result | {"p": p, "p_floor": 2.0 ** (1 - n)}


def _wilcoxon(differences: pd.Series[float]) -> float:
    """Two-sided p-value of the signed rank test, zeros dropped and ties given their mean rank.

    Up to :data:`MAX_EXACT` pairs it is exact: the distribution under the null is built by adding one rank at a time
    with either sign, so ties need no approximation (Pratt & Gibbons 1981, "Concepts of Nonparametric Theory",
    chapter 3). Beyond, scipy's normal approximation corrected for ties.
    """
    # Rounded so that differences which tie in the data tie here too, whatever the last bit of a subtraction says.
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
