"""Whether two cells of a grid can be told apart at all."""

from __future__ import annotations

import pandas as pd
from scipy import stats

CONFIDENCE = 0.95


def paired_within_noise(one: pd.Series[float], other: pd.Series[float]) -> bool:
    """Whether the 95 % t interval of the difference, paired by the index (the seed), holds 0.

    With fewer than two pairs nothing can be told apart. There is no correction for the number of comparisons, so what
    this does tell apart is a candidate, not a finding.
    """
    differences = (one - other).dropna()
    if len(differences) < 2:
        return True
    n = len(differences)
    return _holds_zero(float(differences.mean()), float(differences.std(ddof=1)) ** 2 / n, n - 1)


def summary_within_noise(mean: float, std: float, other_mean: float, other_std: float, n: int) -> bool:
    """The same from printed means and standard deviations of n runs each, whose pairing is not known (Welch's test)."""
    variance, other = std**2 / n, other_std**2 / n
    total = variance + other
    if total == 0:
        return mean == other_mean
    return _holds_zero(mean - other_mean, total, total**2 / ((variance**2 + other**2) / (n - 1)))


def _holds_zero(difference: float, variance: float, df: float) -> bool:
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, df)) * variance**0.5
    return bool(abs(difference) <= reach)
