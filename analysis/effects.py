"""How much the pair weight, the triplet weight and their interaction move recall: a repeated-measures ANOVA.

Every objective is trained on the same seeds of the same blocks, so a *subject* is measured under all P x T
combinations and each effect is tested against how it varies between subjects. Within one block the subjects are its
seeds (what holds for other seeds of this block); over several they are the blocks, averaged over seeds (what holds for
other blocks). Seeds of different blocks are never pooled as if they were independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats
from statsmodels.stats.anova import AnovaRM

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
    """Uncorrected; assumes normal differences of equal variance and covariance (sphericity)."""
    p_corrected: float
    """With the degrees of freedom multiplied by the lower bound of Greenhouse and Geisser, 1 / df: holds however far
    sphericity is from true, at the price of power."""
    partial_eta_squared: float
    """Share of the effect in effect plus its error, 0 to 1; with few subjects it is biased upwards."""
    eta_low: float
    eta_high: float
    """95 % interval of it, from the noncentral F distribution (Smithson 2003); assumes what ``p`` assumes."""
    spread: float
    """Highest minus lowest level mean, in points; for the interaction the largest deviation of a cell from the sum
    of its row's and column's effects."""


def factor_effects(values: pd.DataFrame) -> tuple[Effect, ...]:
    """Main effects and interaction.

    Args:
        values: columns ``subject``, ``pair``, ``triplet`` and ``value``, one row each. Subjects that lack a
            combination which another has are left out.

    Returns:
        The effects in the order of :data:`EFFECTS`; empty with fewer than two whole subjects, fewer than two levels
        of a factor, or values that do not vary between subjects.

    Source: statsmodels' AnovaRM.
    """
    wide = values.pivot(index="subject", columns=["pair", "triplet"], values="value").dropna()
    pairs, triplets = (wide.columns.unique(level) for level in ("pair", "triplet"))
    if len(wide) < 2 or min(len(pairs), len(triplets)) < 2 or wide.shape[1] != len(pairs) * len(triplets):
        return ()
    long = wide.stack(["pair", "triplet"], future_stack=True).to_frame("value").reset_index()  # type: ignore[operator]
    table = AnovaRM(long, "value", "subject", within=["pair", "triplet"]).fit().anova_table
    if not np.isfinite(table["F Value"]).all():
        return ()
    return tuple(_effect(name, table.loc[name], wide) for name in EFFECTS)


def subjects_of(runs: pd.DataFrame, metric: str, within: Iterable[str]) -> pd.DataFrame:
    """Runs as :func:`factor_effects` takes them, averaged over what the subjects do not tell apart.

    Args:
        runs: runs that count.
        metric: column of the metric.
        within: columns that name a subject: ``seed`` inside one block, the block's columns over several.
    """
    columns = list(within)
    means = runs.groupby([*columns, "pair", "triplet"], sort=False)[metric].mean().rename("value").reset_index()
    means["subject"] = means[columns].astype(str).agg("\x1f".join, axis=1)
    return means[["subject", "pair", "triplet", "value"]]


def _effect(name: str, row: pd.Series[float], wide: pd.DataFrame) -> Effect:
    f, df, df_error = float(row["F Value"]), float(row["Num DF"]), float(row["Den DF"])
    low, high = _eta_interval(f, df, df_error)
    return Effect(
        name=name,
        subjects=len(wide),
        f=f,
        df=df,
        df_error=df_error,
        p=float(row["Pr > F"]),
        p_corrected=float(stats.f.sf(f, 1, df_error / df)),
        partial_eta_squared=f * df / (f * df + df_error),
        eta_low=low,
        eta_high=high,
        spread=_spread(name, wide.mean()),
    )


def _eta_interval(f: float, df: float, df_error: float, confidence: float = 0.95) -> tuple[float, float]:
    """The noncentralities under which F would lie at either end of its central 95 %, as partial eta squared.

    (nan, nan) where F is so far out (blocks that agree to the last digit) that the distribution has no numbers there.
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
