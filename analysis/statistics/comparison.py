"""The one rule of a report: which objectives differ, given few seeds and one set of test images.

Tukey-Kramer, with no spread taken below the pooled one. docs/statistics.md explains it and prints its rates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.stats import f, studentized_range

from goal_sweep.analysis.blocks import ALPHA, Array, Comparison

_ROUNDING = 1e-9
"""In points. A standard error below it is a rounding error."""


def compare(values: pd.DataFrame, images: pd.DataFrame | None = None, *, free: int | None = None) -> Comparison[Any]:
    """Compare objectives, or the levels of a weight, in pairs.

    A run is the effect of its objective, plus that of its seed, plus noise. v_k is the variance of objective k's
    residuals after both effects are removed, and s_k = max(v_k, pooled variance). Two objectives differ if::

        |difference| > q sqrt(V / 2),  V = s_i / n_i + s_j / n_j + variance of the difference over test images

    q is the 95 % point of the studentized range for the number of objectives and the degrees of freedom of the pooled
    variance; p comes from the same distribution. Where runs are missing, differences and V are those of least squares.
    An objective with a single run has no spread of its own and is not judged: its differences are those of plain means.

    Args:
        values: a row for each seed, a column for each objective, entries in points; NaN where a run is missing.
        images: covariance of the objectives over samples of test images, as by `shared_noise`; None if not counted.
        free: how many values of a row are free; the number of columns - 1 if None.

    Source: Kramer 1957, "Extension of multiple range tests to group correlated adjusted means", Biometrics 13:13-18.
    Deviates: a spread is never taken below the pooled one, because objectives may be unequally noisy.
    """
    known = values.dropna(axis=0, how="all").dropna(axis=1, how="all")
    if known.empty:
        return Comparison()
    names, num = list(known.columns), known.shape[1]
    plain_K = known.mean().to_numpy()
    best, plain_KK = names[int(plain_K.argmax())], plain_K[:, None] - plain_K
    seeds_R, columns_R = np.nonzero(known.notna().to_numpy())
    runs_R = known.to_numpy(float)[seeds_R, columns_R]
    design_RP = np.hstack([np.eye(num)[columns_R], np.eye(len(known))[seeds_R]])
    inverse_PR = np.linalg.pinv(design_RP, rcond=1e-10)  # objectives and seeds share a constant
    members_KR, weights_KR = design_RP[:, :num].T, inverse_PR[:num]
    residual_RR = np.eye(len(runs_R)) - design_RP @ inverse_PR
    free_K = members_KR @ residual_RR.diagonal() * (1.0 if free is None else free / (num - 1))
    squares_K = members_KR @ (residual_RR @ (runs_R - runs_R.mean())) ** 2
    has_spread_K = free_K > 1e-6
    own_K = np.divide(squares_K, free_K, where=has_spread_K, out=np.zeros(num))
    groups, df = int(has_spread_K.sum()), round(free_K.sum())
    if groups < 2 or df < 1:
        unknown_KK = np.full((num, num), np.nan)
        return Comparison(names=names, best=best, estimates=plain_KK, reach=unknown_KK, p=unknown_KK)

    means_K = weights_KR @ runs_R
    estimates_KK = means_K[:, None] - means_K
    used_R = np.maximum(own_K, squares_K.sum() / df)[columns_R]
    of_seeds_KK = _of_differences(weights_KR * used_R @ weights_KR.T)
    of_images_KK = np.zeros((num, num)) if images is None else _of_differences(images.loc[names, names].to_numpy())
    errors_KK = np.sqrt((of_seeds_KK + of_images_KK) / 2)
    wanted_KP = weights_KR @ design_RP - np.eye(num, design_RP.shape[1])
    is_judged_KK = np.isclose(wanted_KP[:, None], wanted_KP, atol=1e-6).all(axis=2)  # the runs tell the difference
    is_judged_KK &= np.outer(has_spread_K, has_spread_K) & (errors_KK > _ROUNDING)
    quantile, runs = critical(groups, df), float(np.median(members_KR.sum(axis=1)))
    is_near_KK = is_judged_KK & (np.abs(estimates_KK) <= quantile * errors_KK) & ~np.eye(num, dtype=bool)
    return Comparison(
        names=names,
        best=best,
        estimates=np.where(is_judged_KK, estimates_KK, plain_KK),
        reach=np.where(is_judged_KK, quantile * errors_KK, np.nan),
        p=np.where(is_judged_KK, tail(np.abs(estimates_KK) / np.maximum(errors_KK, _ROUNDING), groups, df), np.nan),
        with_images=images is not None,
        runs=runs,
        reach_of_seeds=quantile * _usual(of_seeds_KK[is_near_KK]),
        reach_of_images=quantile * _usual(of_images_KK[is_near_KK]),
        is_uneven=_has_outlying(own_K[has_spread_K], round(runs)),
    )


def critical(groups: int, df: int) -> float:
    """The 95 % point of the studentized range of so many groups and degrees of freedom."""
    return _studentized_range(groups, df)[1]


def tail(ratios: Array, groups: int, df: int) -> Array:
    """The probability that the studentized range of equal groups exceeds each ratio."""
    log_p, _ = _studentized_range(groups, df)
    return np.asarray(np.exp(log_p(np.log(np.clip(ratios, *np.exp(log_p.x[[0, -1]]))))))


@lru_cache(maxsize=64)
def _studentized_range(groups: int, df: int) -> tuple[CubicSpline, float]:
    """Log p over the log of the ratio, to within 0.1 % of p, and the 95 % point. scipy takes 10 ms for a single p."""
    ratios = np.geomspace(0.1, 1000, 40)
    p = studentized_range.sf(ratios, groups, df)
    is_exact = p > 1e-12
    log_p = CubicSpline(np.log(ratios[is_exact]), np.log(p[is_exact]))
    return log_p, float(np.exp(brentq(lambda x: log_p(x) - np.log(ALPHA), log_p.x[0], log_p.x[-1])))


def _of_differences(covariance_KK: Array) -> Array:
    """The variance of each difference."""
    own_K = covariance_KK.diagonal()
    return np.asarray(own_K[:, None] + own_K - 2 * covariance_KK)


def _usual(variances: Array) -> float:
    return float(np.sqrt(np.median(variances) / 2)) if len(variances) else 0.0


def _has_outlying(variances_K: Array, runs: int) -> bool:
    """Whether the largest variance is too large for equal spreads, at 5 %.

    Source: Cochran's C test, ISO 5725-2.
    """
    num = len(variances_K)
    if runs < 2 or num < 3 or not variances_K.any():
        return False
    quantile = f.ppf(1 - ALPHA / num, runs - 1, (num - 1) * (runs - 1))
    return bool(variances_K.max() / variances_K.sum() > 1 / (1 + (num - 1) / quantile))
