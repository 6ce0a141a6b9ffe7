"""How far contrasts of objectives lie from zero by chance, given few seeds: the arithmetic of the one rule.

The model: a run is the effect of its objective, plus that of its seed, plus noise. The noise of all objectives is
pooled, because two to five seeds say little of a single one. An objective that is far noisier than the others is
judged by its own spread instead, and does not enter the pool. Each contrast is compared with the largest of all
contrasts that equal objectives give, in simulated grids with the same runs missing (the single-step maximum of
Westfall & Young 1993, "Resampling-Based Multiple Testing"; for equal spreads and no gaps, nearly Tukey's test). The
constants were chosen by simulation: docs/statistics.md prints the rates of error and power that they give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import ALPHA

Array = NDArray[np.float64]

USED = 0.5
"""The share of `ALPHA` that objectives of equal spread use. The rest is for those whose spreads differ."""
_OUTLYING = {1: 0.9, 2: 2.5, 3: 3.5}
"""By degrees of freedom: with more than this many times the pooled variance, an objective is judged by its own."""
_OUTLYING_LATER = 4.0
"""The same with more degrees of freedom."""
_WIDENED_AT = 0.95
"""The quantile at which a variance of few runs is widened as in Student's t."""
_EXCLUDED = 1 / 7
"""The share of the objectives, those with the largest variances, that does not enter the pool."""
_DRAWS, _BATCH = 10_000, 1_000
_RANK = 1e-10
"""A singular value below this share of the largest one is 0."""
_ROUNDING = 1e-9
"""In points; a standard error or a difference below is a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """M contrasts, their intervals and significance; NaN where the runs do not determine a contrast."""

    estimates: Array
    """Shape (M,), in points."""
    reach: Array
    """Half the width of the simultaneous 95 % intervals, shape (M,), in points."""
    p: Array
    """Corrected for the M contrasts, shape (M,)."""


def judge(values_SK: Array, contrasts_MK: Array, *, paired: bool = True, used: float = USED) -> Judged | None:
    """Judge contrasts of objectives.

    Args:
        values_SK: a row for each seed, a column for each objective, in points; NaN where a run is missing. Every row
            and every column has a run.
        contrasts_MK: the coefficients of each contrast; each row sums to zero.
        paired: whether objectives share their seeds, so that what a seed does to all objectives is not noise.
        used: the share of `ALPHA` that objectives of equal spread use.

    Returns:
        None if no objective has a second run to know the noise by.
    """
    known = ~np.isnan(values_SK)
    layout = _layout(known.tobytes(), known.shape, np.ascontiguousarray(contrasts_MK, float).tobytes(), paired)
    if layout.df <= 0:
        return None
    estimates, errors = (row[0] for row in layout.measure((values_SK - values_SK[known].mean())[known][None]))
    exact = errors <= _ROUNDING
    ratios = np.abs(estimates) / np.where(exact, _ROUNDING, errors)
    largest = _largest_by_chance(layout)
    p = (len(largest) - np.searchsorted(largest, ratios) + 1) / (len(largest) + 1) / used
    p = np.where(exact & (np.abs(estimates) <= _ROUNDING), 1.0, np.minimum(1.0, p))
    reach = np.where(exact, 0.0, np.quantile(largest, 1 - ALPHA * used) * errors)
    estimates, reach, p = (np.where(layout.determined, array, np.nan) for array in (estimates, reach, p))
    return Judged(estimates=estimates, reach=reach, p=p)


def pairwise(num: int) -> Array:
    """The contrasts of each two of ``num`` objectives, in the order of `itertools.combinations`."""
    pairs = list(combinations(range(num), 2))
    contrasts = np.zeros((len(pairs), num))
    for row, (first, second) in enumerate(pairs):
        contrasts[row, first], contrasts[row, second] = 1, -1
    return contrasts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Which runs there are and what is computed from them: R runs of K objectives, M contrasts."""

    members: Array
    """1 where a run is of an objective, shape (R, K)."""
    seeds: NDArray[np.intp]
    """Of each run, shape (R,)."""
    weights: Array
    """From runs to contrasts, by least squares, shape (M, R)."""
    design: Array
    """From effects of objectives and seeds to runs, shape (R, P)."""
    inverse: Array
    """From runs to effects, by least squares, shape (P, R)."""
    df: int
    """Degrees of freedom of the residuals."""
    determined: NDArray[np.bool_]
    paired: bool
    pool_factor: float = 1.0
    """Makes the pooled variance unbiased for equal spreads."""

    def measure(self, runs_DR: Array) -> tuple[Array, Array]:
        """Estimates and standard errors of the contrasts, (D, M) each, of D sets of runs."""
        own_DK, pooled_D1, free_K = self.variances(runs_DR)
        limits_K = np.array([_OUTLYING.get(int(df), _OUTLYING_LATER) for df in free_K])
        widened_K = (stats.t.ppf(_WIDENED_AT, np.maximum(free_K, 1)) / stats.norm.ppf(_WIDENED_AT)) ** 2
        used_DK = np.where((own_DK > limits_K * pooled_D1) & (free_K > 0), widened_K * own_DK, pooled_D1)
        return runs_DR @ self.weights.T, np.sqrt(used_DK @ (self.weights**2 @ self.members).T)

    def variances(self, runs_DR: Array) -> tuple[Array, Array, Array]:
        """The variance of each objective (D, K), the pooled one (D, 1), and the degrees of freedom (K,)."""
        residuals = runs_DR - runs_DR @ self.inverse.T @ self.design.T
        if self.paired:
            # A mean over objectives would pass the noise of a noisy one on to all others; the median does not.
            for seed in range(self.seeds.max() + 1):
                here = self.seeds == seed
                residuals[:, here] -= np.median(residuals[:, here], axis=1, keepdims=True)
        counts_K = self.members.sum(axis=0)
        free_K = counts_K - 1
        sums_DK = np.maximum(residuals**2 @ self.members - (residuals @ self.members) ** 2 / counts_K, 0)
        own_DK = sums_DK / np.maximum(free_K, 1)
        several = np.flatnonzero(free_K)
        kept = len(several) - int(len(several) * _EXCLUDED)
        order = several[np.argsort(own_DK[:, several], axis=1)[:, :kept]]
        pooled = np.take_along_axis(sums_DK, order, axis=1).sum(axis=1) / free_K[order].sum(axis=1)
        return own_DK, pooled[:, None] * self.pool_factor, free_K


@lru_cache(maxsize=256)
def _layout(known: bytes, shape: tuple[int, int], contrasts: bytes, paired: bool) -> _Layout:
    num_seeds, num = shape
    seeds, objectives = np.nonzero(np.frombuffer(known, bool).reshape(shape))
    members = (objectives[:, None] == np.arange(num)).astype(float)
    design = np.hstack([members, (seeds[:, None] == np.arange(num_seeds)).astype(float)]) if paired else members
    # The effects of objectives and seeds share a constant: that singular value is 0 but for rounding.
    inverse, contrasts_MK = np.linalg.pinv(design, _RANK), np.frombuffer(contrasts).reshape(-1, num)
    weights = contrasts_MK @ inverse[:num]
    wanted = np.hstack([contrasts_MK, np.zeros((len(contrasts_MK), design.shape[1] - num))])
    layout = _Layout(
        members=members,
        seeds=seeds,
        weights=weights,
        design=design,
        inverse=inverse,
        df=len(seeds) - int(np.linalg.matrix_rank(design)),
        determined=np.isclose(weights @ design, wanted, atol=1e-6).all(axis=1),
        paired=paired,
    )
    if layout.df <= 0:
        return layout
    _, pooled, _ = layout.variances(np.random.default_rng(1).standard_normal((_BATCH, len(seeds))))
    return replace(layout, pool_factor=1 / float(pooled.mean()))


@lru_cache(maxsize=256)
def _largest_by_chance(layout: _Layout) -> Array:
    """The largest of the contrasts' ratios to their standard errors in grids of equal objectives, sorted."""
    generator = np.random.default_rng(0)
    largest = np.empty((_DRAWS // _BATCH, _BATCH))
    for batch in largest:
        estimates, errors = layout.measure(generator.standard_normal((_BATCH, len(layout.seeds))))
        batch[:] = (np.abs(estimates) / errors)[:, layout.determined].max(axis=1)
    return np.sort(largest, axis=None)
