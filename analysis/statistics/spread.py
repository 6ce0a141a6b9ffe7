"""How far contrasts of objectives lie from zero by chance, given few seeds and one set of test images.

The model: a run is the effect of its objective, plus that of its seed, plus what the test images do to its objective
(`analysis.statistics.images`), plus noise. The noise of all objectives is pooled, because two to five seeds say little
of a single one. No objective, row or column of a grid that looks noisier than the pool is judged by less than its own
spread, and an objective that is not steady by more: its own may be too small by chance. Each contrast is compared with
the largest of all contrasts that equal objectives give, in simulated grids with the same runs missing and the same
image noise (the single-step maximum of Westfall & Young 1993, "Resampling-Based Multiple Testing"; for equal spreads,
no gaps and no image noise, nearly Tukey's test). Between steady objectives verdicts follow the order of the means. The
constants were chosen by simulation: docs/statistics.md prints the rates of error and power that they give.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from goal_sweep.analysis.blocks import ALPHA

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

_USED_OF_TWO, _USED_LATER = 0.15, 0.4
"""The share of `ALPHA` that objectives of equal spread use, where none has a third run and where one has. The rest is
for unequal ones, which two runs do not show."""
_STEADY_OF_TWO, _STEADY_LATER = 1.0, 2.5
"""An objective of two runs, and of more, is steady with at most this many times the pooled variance. One of two runs
among more never is: of all the variances that its own may stand for, most are larger."""
_BESIDE, _STEADY_BESIDE = 1.0, 4.0
"""It also is with at most this many times (the second), if the mean of one that is steady by itself lies within so many
standard errors (the first) of their difference, by the pooled variance."""
_OUTLYING_GROUP = 0.95
"""A row or column is judged by its own variance above this quantile of what equally noisy ones have."""
_CAPPED = 8.0
"""In the variance of a row or column none of its objectives has more than this many times the pooled variance, in the
pooled one none more than this many times the usual one, so that a run that went wrong hides little of the others. With
two seeds the pool has no cap: noisy objectives are overlooked just where their runs lie close together."""
_WIDENED_AT = 0.95
"""The quantile at which the variance of an objective that is not steady is widened as in Student's t."""
_DOUBT = 0.1
"""The probability that the true variance over seeds exceeds the one that is simulated beside image noise."""
_DRAWS, _BATCH = 5_000, 1_000
_RANK = 1e-10
"""A singular value below this share of the largest one is 0."""
_ROUNDING = 1e-9
"""In points; a standard error or a difference below is a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """M contrasts, their intervals and significance; NaN where the runs do not determine a contrast or its noise.

    So it is where an objective of the contrast has a single run. Runs that agree exactly, as two of the same seed do,
    are no evidence of how runs differ, nor is one that is alone in its seed.
    """

    estimates: Array
    """Shape (M,), in points."""
    reach: Array
    """Half the width of the simultaneous 95 % intervals for new seeds and new test images, shape (M,), in points;
    shorter where the order of the means decides, so that an interval leaves out 0 just where p is below `ALPHA`."""
    p: Array
    """Of the same, corrected for the M contrasts, shape (M,)."""
    reach_of_seeds: Array
    """Half the width of the intervals for new seeds on these test images, shape (M,), in points."""


def judge(
    values_SK: Array,
    contrasts_MK: Array,
    labels: Sequence[tuple[Hashable, ...]],
    images_KK: Array | None = None,
    *,
    paired: bool = True,
    used: float | None = None,
    in_order: bool = False,
) -> Judged | None:
    """Judge contrasts of objectives.

    Args:
        values_SK: a row for each seed, a column for each objective, in points; NaN where a run is missing.
        contrasts_MK: the coefficients of each contrast; each row sums to zero.
        labels: the objectives' names in parts, such as pair and triplet weight; those that share one may be noisier
            together.
        images_KK: covariance of the objectives over samples of test images; None if it is not known or not asked for.
        paired: whether objectives share their seeds, so that what a seed does to all objectives is not noise.
        used: the share of `ALPHA` that objectives of equal spread use; by the number of runs if None.
        in_order: whether the contrasts are all of `pairwise`, and verdicts between steady objectives follow the order
            of the means.

    Returns:
        None if no objective has a second run to know the noise by.
    """
    if paired:
        values_SK = values_SK[(~np.isnan(values_SK)).sum(axis=1) > 1]
    known = ~np.isnan(values_SK)
    if not known.any():
        return None
    contrasts = np.ascontiguousarray(contrasts_MK, float)
    layout = _layout(known.tobytes(), known.shape, contrasts.tobytes(), groups_of(labels).tobytes(), paired)
    if layout.df <= 0:
        return None
    used = used or (_USED_OF_TWO if layout.at_most_two else _USED_LATER)
    factors = _image_factors(contrasts, images_KK)
    of_images = (factors**2).sum(axis=0)
    any_images = bool(of_images.max(initial=0.0) > _ROUNDING**2)
    runs = (values_SK - values_SK[known].mean())[known][None]
    estimates, of_seeds, steady = (row[0] for row in layout.measure(runs))
    _, pooled, _ = layout.variances(runs)
    errors = np.sqrt(of_seeds**2 + of_images)
    alone = np.where(layout.determined, np.abs(estimates) / np.maximum(errors, _ROUNDING), 0.0)
    between = _largest_between(alone, layout.means(runs)[0], layout.counts, steady) if in_order else alone
    ratios = np.maximum(alone, between)
    largest = _largest_of_seeds(layout)
    if any_images:
        # Beside image noise the critical ratio depends on the variance over seeds. A small variance makes it too small.
        limit = layout.df / stats.chi2.ppf(_DOUBT, layout.df) * float(pooled[0, 0])
        largest = _largest_by_chance(layout, limit, factors)
    p = np.minimum(1.0, (len(largest) - np.searchsorted(largest, ratios) + 1) / (len(largest) + 1) / used)
    critical = _critical(largest, used)
    by_order = (ratios > critical) & (alone <= critical)
    reach = critical * errors * np.where(by_order, alone / np.maximum(ratios, _ROUNDING), 1.0)
    reach_of_seeds = np.minimum(_critical(_largest_of_seeds(layout), used) * of_seeds, reach)
    is_judged = layout.determined & (errors > _ROUNDING) & ~((contrasts != 0) @ (layout.counts < 2))
    arrays = (estimates, reach, p, np.where(of_seeds <= _ROUNDING, 0.0, reach_of_seeds))
    estimates, reach, p, reach_of_seeds = (np.where(is_judged, array, np.nan) for array in arrays)
    return Judged(estimates=estimates, reach=reach, p=p, reach_of_seeds=reach_of_seeds)


def _largest_between(ratios_M: Array, means_K: Array, counts_K: Array, steady_K: NDArray[np.bool_]) -> Array:
    """For each two steady objectives the largest ratio of two steady ones that lie between or are the same, (M,).

    Of those between, neither has more runs than the outer one on its side.
    """
    pairs = np.triu_indices(len(means_K), 1)
    ratios_KK = np.zeros((len(means_K), len(means_K)))
    ratios_KK[pairs] = ratios_M
    is_greater = means_K[:, None] - means_K > _ROUNDING
    both_steady = np.outer(steady_K, steady_K)
    ratios_KK = (ratios_KK + ratios_KK.T) * is_greater * both_steady
    as_many = counts_K[:, None] >= counts_K
    from_above = ((as_many & ~is_greater.T)[:, :, None] * ratios_KK).max(axis=1)
    between = (from_above[:, None, :] * (as_many & ~is_greater)).max(axis=2) * both_steady
    return np.asarray(np.maximum(between, between.T)[pairs])


def _critical(largest: Array, used: float) -> float:
    """The ratio above which p is below `ALPHA`, so that an interval leaves out 0 just where the verdict says so."""
    return float(largest[len(largest) + 1 - ceil(ALPHA * used * (len(largest) + 1))])


def groups_of(labels: Sequence[tuple[Hashable, ...]]) -> Array:
    """The rows, columns and other groups of objectives that share a part of their names: 1 for a member, (G, K)."""
    parts = list(zip(*labels, strict=True))
    groups = [[own == value for own in part] for part in parts for value in dict.fromkeys(part)]
    chosen = [group for group in groups if 1 < sum(group) < len(labels)]
    return np.array(chosen, float).reshape(-1, len(labels))


def _image_factors(contrasts_MK: Array, images_KK: Array | None) -> Array:
    """From independent normal numbers to what new test images do to the contrasts, (K, M); (0, M) if not known."""
    if images_KK is None:
        return np.zeros((0, len(contrasts_MK)))
    values, vectors = np.linalg.eigh(images_KK)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))).T @ contrasts_MK.T)


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
    groups: Array
    """1 where an objective is in a row or column, shape (G, K)."""
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

    @property
    def counts(self) -> Array:
        """The runs of each objective, (K,); 1 for one without any, which has no part in what is determined."""
        return np.asarray(np.maximum(self.members.sum(axis=0), 1.0))

    @property
    def at_most_two(self) -> bool:
        """Whether no objective has a third run."""
        return bool(self.counts.max() <= 2)

    def measure(self, runs_DR: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Of D sets of runs the contrasts' estimates and standard errors, (D, M), and who is steady, (D, K)."""
        own_DK, pooled_D1, free_K = self.variances(runs_DR)
        can_be_K = free_K > (0 if self.at_most_two else 1)
        calm_DK = (own_DK <= np.where(free_K == 1, _STEADY_OF_TWO, _STEADY_LATER) * pooled_D1) & can_be_K
        steady_DK = self._beside(runs_DR, pooled_D1, calm_DK) & (own_DK <= _STEADY_BESIDE * pooled_D1) & can_be_K
        used_DK = np.maximum(np.where(steady_DK, 1.0, _widening(free_K)) * own_DK, pooled_D1)
        capped_DK = np.minimum(own_DK, _CAPPED * pooled_D1) * free_K
        for members_K in self.groups > 0:
            free = max(float(free_K[members_K].sum()), 1.0)
            of_group_D1 = capped_DK[:, members_K].sum(axis=1, keepdims=True) / free
            noisier_D1 = of_group_D1 > stats.chi2.ppf(_OUTLYING_GROUP, free) / free * pooled_D1
            used_DK[:, members_K] = np.maximum(used_DK[:, members_K], np.where(noisier_D1, of_group_D1, 0))
        return runs_DR @ self.weights.T, np.sqrt(used_DK @ (self.weights**2 @ self.members).T), steady_DK

    def means(self, runs_DR: Array) -> Array:
        """The means of the objectives by least squares, up to a constant, (D, K)."""
        return np.asarray(runs_DR @ self.inverse[: self.members.shape[1]].T)

    def _beside(self, runs_DR: Array, pooled_D1: Array, calm_DK: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the mean of a calm objective is beside each one's, (D, K): true of a calm one itself."""
        counts_K, means_DK = self.counts, self.means(runs_DR)
        beside_DK = np.zeros_like(calm_DK)
        for other, count in enumerate(counts_K):
            reach_DK = _BESIDE * np.sqrt(pooled_D1 * (1 / counts_K + 1 / count))
            beside_DK |= (np.abs(means_DK - means_DK[:, [other]]) <= reach_DK) & calm_DK[:, [other]]
        return beside_DK

    def variances(self, runs_DR: Array) -> tuple[Array, Array, Array]:
        """The variance of each objective (D, K), the pooled one (D, 1), and the degrees of freedom (K,)."""
        residuals = runs_DR - runs_DR @ self.inverse.T @ self.design.T
        if self.paired:
            # A mean over objectives would pass the noise of a noisy one on to all others; the median does not.
            for seed in range(self.seeds.max() + 1):
                here = self.seeds == seed
                residuals[:, here] -= np.median(residuals[:, here], axis=1, keepdims=True)
        counts_K, free_K = self.counts, self.counts - 1
        sums_DK = np.maximum(residuals**2 @ self.members - (residuals @ self.members) ** 2 / counts_K, 0)
        own_DK = sums_DK / np.maximum(free_K, 1)
        limit_D1 = np.full((1, 1), np.inf)
        if counts_K.max() > 2:
            several = free_K > 0
            usual_DK = own_DK[:, several] * free_K[several] / stats.chi2.ppf(0.5, free_K[several])
            usual_D1 = np.median(usual_DK, axis=1, keepdims=True)
            limit_D1 = np.where(usual_D1 > _ROUNDING**2, _CAPPED * usual_D1, np.inf)
        pooled_D1 = np.minimum(own_DK, limit_D1) @ free_K[:, None] / free_K.sum()
        return own_DK, pooled_D1 * self.pool_factor, free_K


@lru_cache(maxsize=256)
def _layout(known: bytes, shape: tuple[int, int], contrasts: bytes, groups: bytes, paired: bool) -> _Layout:
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
        groups=np.frombuffer(groups).reshape(-1, num),
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


def _largest_by_chance(layout: _Layout, variance: float, factors: Array) -> Array:
    """The largest of the contrasts' ratios to their standard errors in grids of equal objectives, sorted.

    Args:
        layout: the runs.
        variance: of a run, over seeds.
        factors: of the images.
    """
    estimates, of_seeds = _by_chance(layout)
    from_images = _normal(len(factors)) @ factors.astype(np.float32)
    errors_2 = np.float32(variance) * of_seeds + (factors**2).sum(axis=0).astype(np.float32)
    return _largest(layout, np.float32(variance**0.5) * estimates + from_images, errors_2)


@lru_cache(maxsize=16)
def _largest_of_seeds(layout: _Layout) -> Array:
    """The same without image noise, which holds for every variance."""
    return _largest(layout, *_by_chance(layout))


def _largest(layout: _Layout, estimates_DM: Array32, errors_2_DM: Array32) -> Array:
    ratios = estimates_DM**2 / np.maximum(errors_2_DM, np.float32(_ROUNDING**2))
    largest: Array = np.sqrt(np.sort(ratios[:, layout.determined].max(axis=1))).astype(float)
    return largest


@lru_cache(maxsize=4)
def _normal(num: int) -> Array32:
    return np.random.default_rng(2).standard_normal((_DRAWS, num)).astype(np.float32)


@lru_cache(maxsize=16)
def _by_chance(layout: _Layout) -> tuple[Array32, Array32]:
    """Estimates and squared standard errors of the contrasts in grids of equal objectives, of variance 1: (D, M)."""
    generator = np.random.default_rng(0)
    parts = []
    for _ in range(_DRAWS // _BATCH):
        estimates, errors, _ = layout.measure(generator.standard_normal((_BATCH, len(layout.seeds))))
        parts.append((estimates.astype(np.float32), (errors**2).astype(np.float32)))
    return np.concatenate([one for one, _ in parts]), np.concatenate([other for _, other in parts])


def _widening(free: Array | float) -> Array:
    """By how much to multiply a variance of so many degrees of freedom."""
    return np.asarray((stats.t.ppf(_WIDENED_AT, np.maximum(free, 1)) / stats.norm.ppf(_WIDENED_AT)) ** 2)
