"""The effects of the pair weight and the triplet weight on recall: marginal means, and which effect is significant.

Every objective is trained on the same seeds of the same blocks, so a *subject* is measured under all P x T
combinations, and each effect is tested against its variation between subjects. Within one block the subjects are its
seeds, and results generalise to other seeds of this block. Over several blocks the subjects are the blocks, averaged
over seeds, and results generalise to other blocks. Seeds of different blocks are never pooled as if independent.

An effect is significant if any of its contrasts is, by the rule of `analysis.statistics.spread`. F and partial eta
squared, of the repeated-measures analysis of variance, describe the size of the effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, stats

from analysis.blocks import MODEL_COLUMNS
from analysis.statistics.spread import judge, pairwise
from sweeps.results import METRICS, PAIRS, TRIPLETS, Metric, in_order

_ROUNDING = 1e-24
"""A sum of squares below this share of the total is rounding error."""
MARGINAL_COLUMNS = (*MODEL_COLUMNS, "stage")
"""The block's columns in the frame of :func:`marginals`, in order."""
_USED_BY_INTERACTION = 0.7
"""The share of 5 % that the test of an interaction uses where spreads are equal. The two tests of a main effect, which
must both pass, use all of it each."""
_FACTORS = {"pair": PAIRS, "triplet": TRIPLETS}
EFFECTS = {"pair": "pair weight", "triplet": "triplet weight", "pair:triplet": "interaction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One row of the analysis."""

    name: str
    """A key of :data:`EFFECTS`."""
    subjects: int
    f: float
    df: float
    """Degrees of freedom of the effect."""
    df_error: float
    p: float
    """Of the largest contrast, corrected for the number of contrasts."""
    partial_eta_squared: float
    """Share of the effect in the effect plus its error, 0 to 1; biased upwards with few subjects."""
    eta_low: float
    eta_high: float
    """Its 95 % interval, from the noncentral F distribution (Smithson 2003); assumes equal spreads."""
    spread: float
    """Highest minus lowest level mean, in points; for the interaction the largest deviation of a cell from the sum
    of its row's and column's effects."""


def crossed_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of the objectives that form a grid, without those of a user's weights that would leave holes in it.

    A user's weight stays if it is combined with all known weights, and with the user's weights that stay before it.

    Args:
        runs: runs that count.
    """
    combined = set(zip(runs["pair"], runs["triplet"], strict=True))
    pairs, triplets = ([name for name in known if name in set(runs[factor])] for factor, known in _FACTORS.items())
    for name in sorted(set(runs["pair"]) - set(PAIRS)):
        if triplets and {(name, triplet) for triplet in triplets} <= combined:
            pairs.append(name)
    for name in sorted(set(runs["triplet"]) - set(TRIPLETS)):
        if pairs and {(pair, name) for pair in pairs} <= combined:
            triplets.append(name)
    if not pairs or not triplets:
        return runs
    return runs[runs["pair"].isin(pairs) & runs["triplet"].isin(triplets)]


def marginals(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Mean over the other weight, for each block, metric and level of ``factor``.

    The other weight is averaged within each seed first; the mean and standard deviation are over seeds. A seed that
    lacks a cell of a level is excluded from that level, so that levels are comparable.

    Args:
        runs: runs that count.
        factor: ``pair`` or ``triplet``.

    Returns:
        Columns: the block's, ``direction``, ``metric``, ``factor``, ``level``, ``mean``, ``std`` (ddof=1) and ``n``
        seeds. A level without a complete seed has n = 0 and no mean.
    """
    other, known = ("triplet", PAIRS) if factor == "pair" else ("pair", TRIPLETS)
    rows = []
    for block, frame in runs.groupby(list(MARGINAL_COLUMNS), sort=True):
        num_other = frame[other].nunique()
        tests = [metric.test for metric in METRICS.values()]
        levels = in_order(frame[factor], known)
        of_seeds = frame.groupby([factor, "seed"])[tests].agg(["mean", "count"])
        by_seed = {level: of_seeds.loc[level] for level in levels}
        for metric in METRICS.values():
            for level in levels:
                here = by_seed[level][metric.test]
                values = here.loc[here["count"] == num_other, "mean"]
                row = dict(zip(MARGINAL_COLUMNS, block, strict=True)) | {"factor": factor, "level": level}
                row |= {"direction": metric.direction, "metric": metric.name}
                rows.append(row | {"mean": values.mean(), "std": values.std(ddof=1), "n": len(values)})
    columns = [*MARGINAL_COLUMNS, "direction", "metric", "factor", "level", "mean", "std", "n"]
    return pd.DataFrame(rows, columns=columns)


def factor_effects(values: pd.DataFrame) -> tuple[Effect, ...]:
    """Main effects and interaction.

    Args:
        values: columns ``subject``, ``pair``, ``triplet`` and ``value``, one row each. Subjects that lack a
            combination that another has are excluded.

    Returns:
        The effects in the order of :data:`EFFECTS`; empty with fewer than two complete subjects, fewer than two
        levels of a factor, or effects that do not vary between subjects.

    Source: Winer 1971, "Statistical Principles in Experimental Design", chapter 7.
    """
    wide = _whole(values)
    pairs, triplets = (wide.columns.unique(level) for level in ("pair", "triplet"))
    if len(wide) < 2 or min(len(pairs), len(triplets)) < 2:
        return ()
    spread = wide.sub(wide.mean(axis=1), axis=0).to_numpy()
    if ((spread - spread.mean(axis=0)) ** 2).sum() <= _ROUNDING * (wide.to_numpy() ** 2).sum():
        return ()  # subjects that agree to the last digit do not vary
    values_SPT = wide[list(product(pairs, triplets))].to_numpy().reshape(len(wide), len(pairs), len(triplets))
    ratios, significance = _f_ratios(values_SPT), p_values(values_SPT)
    if not np.isfinite([f for f, _, _ in ratios.values()]).all():
        return ()
    return tuple(_effect(name, *ratios[name], significance[name], wide) for name in EFFECTS)


def p_values(values_SPT: NDArray[np.float64]) -> dict[str, float]:
    """The significance of each effect, by name.

    A main effect counts only if it passes two tests: of the level means per seed, where a seed's effect on a whole
    level is noise; and against the noise of single objectives, so that one noisy objective cannot pass for its level.
    An interaction is the deviation of any objective from the sum of its row's and column's effects.

    Args:
        values_SPT: by subject, pair weight and triplet weight, in points; at least two subjects.
    """
    num_subjects, num_pairs, num_triplets = values_SPT.shape
    cells = values_SPT.reshape(num_subjects, -1)
    of_pairs, of_triplets = pairwise(num_pairs), pairwise(num_triplets)
    mean_of_triplets, mean_of_pairs = (
        np.full((1, num_triplets), 1 / num_triplets),
        np.full((1, num_pairs), 1 / num_pairs),
    )
    deviations = np.kron(np.eye(num_pairs) - mean_of_pairs, np.eye(num_triplets) - mean_of_triplets)
    return {
        "pair": max(
            _smallest_p(values_SPT.mean(axis=2), of_pairs), _smallest_p(cells, np.kron(of_pairs, mean_of_triplets))
        ),
        "triplet": max(
            _smallest_p(values_SPT.mean(axis=1), of_triplets), _smallest_p(cells, np.kron(mean_of_pairs, of_triplets))
        ),
        "pair:triplet": _smallest_p(cells, deviations, _USED_BY_INTERACTION),
    }


def _smallest_p(values: NDArray[np.float64], contrasts: NDArray[np.float64], used: float = 1.0) -> float:
    judged = judge(values, contrasts, used=used)
    assert judged is not None  # there are two complete subjects
    return float(judged.p.min())


def _f_ratios(values_SPT: NDArray[np.float64]) -> dict[str, tuple[float, int, int]]:
    """F and its two degrees of freedom for each effect: its mean square over that of its interaction with subjects.

    Equal to statsmodels' AnovaRM, which takes a second for 70 subjects because it fits a column to each of them.
    """
    centred = values_SPT - values_SPT.mean(axis=(1, 2), keepdims=True)
    by_pair, by_triplet = centred.mean(axis=2, keepdims=True), centred.mean(axis=1, keepdims=True)
    shares = {"pair": by_pair, "triplet": by_triplet, "pair:triplet": centred - by_pair - by_triplet}
    num_subjects, num_pairs, num_triplets = values_SPT.shape
    free = {"pair": num_pairs - 1, "triplet": num_triplets - 1, "pair:triplet": (num_pairs - 1) * (num_triplets - 1)}
    ratios = {}
    for name, share in shares.items():
        effect = share.mean(axis=0, keepdims=True)
        df, df_error = free[name], free[name] * (num_subjects - 1)
        explained, error = num_subjects * (effect**2).sum() / df, ((share - effect) ** 2).sum() / df_error
        ratios[name] = float(np.divide(explained, error)) if error else math.inf, df, df_error
    return ratios


def whole_subjects(values: pd.DataFrame) -> tuple[int, int]:
    """The number of subjects that :func:`factor_effects` can use, and of their combinations.

    If the combinations are not a full grid, it cannot use any subject.

    Args:
        values: as for :func:`factor_effects`.
    """
    return _whole(values).shape


def _whole(values: pd.DataFrame) -> pd.DataFrame:
    """A row for each complete subject and a column for each combination; no rows if these are not a full grid."""
    wide = values.pivot(index="subject", columns=["pair", "triplet"], values="value").dropna()
    is_grid = wide.shape[1] == values["pair"].nunique() * values["triplet"].nunique()
    return wide if is_grid else wide.iloc[:0]


def subjects_of(runs: pd.DataFrame, metric: Metric, within: Iterable[str]) -> pd.DataFrame:
    """Runs in the form that :func:`factor_effects` expects, averaged over everything but subject and objective.

    Args:
        runs: runs that count.
        metric: the metric to analyse.
        within: the columns that identify a subject: ``seed`` within one block, the model's columns over several.
    """
    columns = list(within)
    means = runs.groupby([*columns, "pair", "triplet"], sort=False)[metric.test].mean().rename("value").reset_index()
    named = means[columns].astype(str)
    means["subject"] = named[columns[0]].str.cat(named[columns[1:]], sep="\x1f") if columns[1:] else named[columns[0]]
    return means[["subject", "pair", "triplet", "value"]]


def _effect(name: str, f: float, df: int, df_error: int, p: float, wide: pd.DataFrame) -> Effect:
    low, high = _eta_interval(f, df, df_error)
    return Effect(
        name=name,
        subjects=len(wide),
        f=f,
        df=df,
        df_error=df_error,
        p=p,
        partial_eta_squared=f * df / (f * df + df_error),
        eta_low=low,
        eta_high=high,
        spread=_spread(name, wide.mean()),
    )


def _eta_interval(f: float, df: float, df_error: float, confidence: float = 0.95) -> tuple[float, float]:
    """The noncentralities at which F lies at either end of its central 95 %, as partial eta squared.

    (nan, nan) if F is too large (blocks that agree to the last digit) to evaluate the distribution.
    """

    def noncentrality(level: float) -> float:
        if stats.f.cdf(f, df, df_error) <= level:
            return 0.0
        top = 10.0 + 4 * f * df
        while (reached := stats.ncf.cdf(f, df, df_error, top)) > level and top < 1e7:
            top *= 2
        if not reached <= level:
            return math.nan
        return float(optimize.brentq(lambda nc: stats.ncf.cdf(f, df, df_error, nc) - level, 0, top))

    low, high = (noncentrality(0.5 + side * confidence / 2) for side in (1, -1))
    if math.isnan(low + high):
        return math.nan, math.nan
    return low / (low + df + df_error + 1), high / (high + df + df_error + 1)


def _spread(name: str, cells: pd.Series[float]) -> float:
    if name != "pair:triplet":
        levels = cells.groupby(level=name).mean()
        return float(levels.max() - levels.min())
    rows = cells.groupby(level="pair").transform("mean")
    columns = cells.groupby(level="triplet").transform("mean")
    return float((cells - rows - columns + cells.mean()).abs().max())
