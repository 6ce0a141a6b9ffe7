"""The one rule of a report: which objectives and weights differ, given few seeds and one set of test images.

Tukey-Kramer, with no spread taken below the pooled one. docs/statistics.md explains it and prints its rates.

A run is measured on a sample of images, and all runs of a block on the same one. The variance of a difference over new
seeds and new images is that over seeds, plus what images change for every seed alike: the covariance over images
between runs of *different* seeds. What they change for single runs is in the spread over seeds already.

Source: Obuchowski & Rockette 1995, Communications in Statistics 24:285-308 (there readers are what seeds are here, and
cases are images). An image and its captions are one case.

The means of the pair weights and of the triplet weights are compared by the same rule. Every objective is trained with
the same seeds, so the mean over the other weight is taken within each seed.
"""

import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.stats import studentized_range

from goal_sweep.analysis.blocks import ALPHA, Array, CellSummary, Comparison, Name, Objective, Weights
from goal_sweep.goal_core.evaluation.metrics import METRICS, RECALLS_AT, SUMMED

Ranks = NDArray[np.int64]
MANY_SEEDS = 100
"""More seeds than these are not counted."""
_ROUNDING = 1e-9
"""In points. A standard error below it is a rounding error."""


def compare(values: pd.DataFrame, images: pd.DataFrame | None = None, *, free: int | None = None) -> Comparison[Any]:
    """Compare objectives, or the levels of a weight, in pairs.

    A run is the effect of its objective, plus that of its seed, plus noise. v_k is the variance of objective k's
    residuals after both effects are removed by least squares, and s_k = max(v_k, pooled variance). Two objectives
    differ if the difference of their means over their own n runs is::

        |difference| > q sqrt(V / 2),  V = s_i / n_i + s_j / n_j + variance of the difference over test images

    q is the 95 % point of the studentized range for the number of objectives and the degrees of freedom of the pooled
    variance; p comes from the same distribution. An objective with a single run has no spread of its own and is not
    tested, nor are two without a common seed, whose difference may be one of seeds.

    Args:
        values: a row for each seed, a column for each objective, entries in points; NaN where a run is missing.
        images: covariance of the objectives over samples of test images, as by `shared_noise`; None if not counted.
        free: how many values of a row are free; the number of columns - 1 if None.

    Source: Kramer 1956, "Extension of multiple range tests to group means with unequal numbers of replications",
    Biometrics 12:307-310.
    Deviates: a spread is never taken below the pooled one, because objectives may be unequally noisy.
    """
    known = values.dropna(axis=0, how="all").dropna(axis=1, how="all")
    if known.empty:
        return Comparison()
    names, num, has_run_SK = list(known.columns), known.shape[1], known.notna().to_numpy(int)
    means_K, runs_K = known.mean().to_numpy(), has_run_SK.sum(axis=0)
    best, estimates_KK = names[int(means_K.argmax())], means_K[:, None] - means_K
    seeds_R, columns_R = np.nonzero(has_run_SK)
    runs_R = known.to_numpy(float)[seeds_R, columns_R]
    members_RK = np.eye(num)[columns_R]
    design_RP = np.hstack([members_RK, np.eye(len(known))[seeds_R]])
    # By its pseudoinverse, because objectives and seeds share a constant.
    residual_RR = np.eye(len(runs_R)) - design_RP @ np.linalg.pinv(design_RP, rcond=1e-10)
    free_K = residual_RR.diagonal() @ members_RK * (1.0 if free is None else free / (num - 1))
    squares_K = (residual_RR @ (runs_R - runs_R.mean())) ** 2 @ members_RK
    has_spread_K = free_K > 1e-6
    own_K = np.divide(squares_K, free_K, where=has_spread_K, out=np.zeros(num))
    groups, df = int(has_spread_K.sum()), round(free_K.sum())
    if groups < 2 or df < 1:
        unknown_KK = np.full((num, num), np.nan)
        return Comparison(names=names, best=best, estimates=estimates_KK, reach=unknown_KK, p=unknown_KK)

    spreads_K = np.maximum(own_K, squares_K.sum() / df)
    of_seeds_KK = (spreads_K / runs_K)[:, None] + spreads_K / runs_K
    covariance_KK = np.zeros((num, num)) if images is None else images.loc[names, names].to_numpy()
    of_images_KK = covariance_KK.diagonal()[:, None] + covariance_KK.diagonal() - 2 * covariance_KK
    of_images_KK = of_images_KK.clip(min=0)  # below which rounding can take it
    errors_KK = np.sqrt((of_seeds_KK + of_images_KK) / 2)
    is_tested_KK = np.outer(has_spread_K, has_spread_K) & (has_run_SK.T @ has_run_SK > 0) & (of_seeds_KK > _ROUNDING)
    is_tested_KK &= ~np.eye(num, dtype=bool)
    _, quantile = studentized(groups, df)
    return Comparison(
        names=names,
        best=best,
        estimates=estimates_KK,
        reach=np.where(is_tested_KK, quantile * errors_KK, np.nan),
        p=np.where(is_tested_KK, tail(np.abs(estimates_KK) / np.maximum(errors_KK, _ROUNDING), groups, df), np.nan),
        with_images=images is not None,
        spreads=spreads_K,
        counts=runs_K,
        of_images=of_images_KK,
        df=df,
    )


def seeds_to_settle(found: Comparison[Name], one: Name, other: Name, *, at_most: int = MANY_SEEDS) -> int | None:
    """How many more seeds would make a difference significant, if the means and spreads stay as they are.

    The smallest m for which the interval that `compare` would give after m more runs of every objective excludes 0::

        |difference| > q sqrt(V / 2),  V = s_i / (n_i + m) + s_j / (n_j + m) + variance over test images

    q has the degrees of freedom of then: each seed adds one less than there are objectives. Of two objectives this is
    the sample size of a paired t interval, the smallest n with n > (t s / difference)².

    Returns:
        None where the difference is significant, zero or not tested, and where `at_most` more seeds are too few.

    Source: Kutner et al. 2005, "Applied Linear Statistical Models", 5th edition, section 17.8 (by Tukey's procedure).
    """
    change, i, j, groups = found.differences[one, other], *map(found.names.index, (one, other)), len(found.names)
    if change.verdict != "not significant" or change.estimate == 0:
        return None

    def is_settled(more: int) -> bool:
        variances = found.spreads / (found.counts + more)
        error = np.sqrt((variances[i] + variances[j] + found.of_images[i, j]) / 2)
        return _exact_tail(abs(change.estimate) / error, groups, found.df + more * (groups - 1)) < ALPHA

    more = 1 + bisect_left(range(1, at_most + 1), True, key=is_settled)
    return more if more <= at_most else None


@lru_cache(maxsize=1024)
def _exact_tail(ratio: float, groups: int, df: int) -> float:
    return float(studentized_range.sf(ratio, groups, df))


def tail(ratios: Array, groups: int, df: int) -> Array:
    """The probability that the studentized range of equal groups exceeds each ratio."""
    log_p, _ = studentized(groups, df)
    inside = np.clip(ratios, *np.exp(log_p.x[[0, -1]]))
    return np.asarray(np.minimum(np.exp(log_p(np.log(inside))), 1.0))


@lru_cache(maxsize=64)
def studentized(groups: int, df: int) -> tuple[CubicSpline, float]:
    """Log p over the log of a studentized range, within 0.1 % of p, and its 95 % point; scipy takes 10 ms for one p."""
    ratios = np.geomspace(0.1, 1000, 40)
    p = studentized_range.sf(ratios, groups, df)
    is_exact = p > 1e-12
    log_p = CubicSpline(np.log(ratios[is_exact]), np.log(p[is_exact]))
    return log_p, float(np.exp(brentq(lambda x: log_p(x) - np.log(ALPHA), log_p.x[0], log_p.x[-1])))


def chance_rsum(captions_N: Ranks) -> tuple[float, float]:
    """The mean rsum of a model by chance, in points, and an upper bound of its standard error.

    By chance the rank r of the first of a query's c right answers among M is uniform over their places. A query scores
    s = 1[r <= 1] + 1[r <= 5] + 1[r <= 10], where with K at most M::

        P(r <= K) = 1 - C(M - c, K) / C(M, K),  E s = sum of P(r <= K),  E s² = 5 P(r <= 1) + 3 P(r <= 5) + P(r <= 10)

    Queries of one image are not independent, so each direction counts N of them, and nor are directions: a pair that is
    similar by chance ranks well in both. So their standard errors add, which is never too little.

    Args:
        captions_N: the number of captions of each test image, at least 1; both results are 0 without any.

    Source: the hypergeometric distribution, Feller 1968, "An Introduction to Probability Theory", volume 1, II.6.
    """
    if not (num := len(captions_N)):
        return 0.0, 0.0
    mean, error, places = 0.0, 0.0, np.arange(max(RECALLS_AT))[:, None]
    for counts, items in ((captions_N, captions_N.sum()), (np.ones(num), num)):
        misses = np.clip((items - counts - places) / np.maximum(items - places, 1), 0, 1)
        p_KN = 1 - misses.cumprod(axis=0)[np.array(RECALLS_AT) - 1]
        variances_N = np.array([5, 3, 1]) @ p_KN - p_KN.sum(axis=0) ** 2
        mean += 100 * float(p_KN.sum(axis=0).mean())
        error += 100 * float(np.sqrt(max(variances_N.mean(), 0) / num))
    return mean, error


def saved_ranks(ranks: bytes) -> tuple[Ranks, Ranks, Ranks]:
    """The ranks of a training's test queries: of images (N,), of captions (M,); and the captions of each image (N,)."""
    with np.load(io.BytesIO(ranks), allow_pickle=False) as saved:
        return saved["i2t"], saved["t2i"], saved["captions"]


def image_scores(ranks: bytes) -> Array:
    """The scores of each test image, whose mean over the images is the metric, by row as in `METRICS`.

    The captions of an image may vary in number, so its share of a caption recall is that of a ratio of two sums.

    Returns:
        Shape (metrics, N), in points.
    """
    i2t_N, t2i_M, captions_N = saved_ranks(ranks)
    images_M = np.repeat(np.arange(len(captions_N)), captions_N)
    scores = {}
    for k in RECALLS_AT:
        hits_N = np.bincount(images_M, t2i_M < k, len(captions_N))
        recall = hits_N.sum() / len(t2i_M)
        scores[f"i2t_r{k}"] = 100.0 * (i2t_N < k)
        scores[f"t2i_r{k}"] = 100.0 * (recall + (hits_N - recall * captions_N) / captions_N.mean())
    scores["rsum"] = np.sum([scores[name] for name in SUMMED], axis=0)
    return np.stack([scores[name] for name in METRICS])


def shared_noise(runs: pd.DataFrame) -> dict[str, pd.DataFrame] | None:
    """The covariance of the means of objectives over samples of test images, by the metric's key.

    Returns:
        Square frames in points squared, both sides by (pair, triplet); None where a training has no ranks.
    """
    if runs.empty or not all(isinstance(ranks, bytes) for ranks in runs["ranks"]):
        return None
    scores_MRN = np.stack([image_scores(ranks) for ranks in runs["ranks"]], axis=1)
    of_runs = pd.MultiIndex.from_frame(runs[["pair", "triplet"]])
    names = of_runs.unique()
    members_RK, seeds_R = np.eye(len(names))[names.get_indexer(of_runs)], runs["seed"].to_numpy()
    return {
        key: pd.DataFrame(covariance(scores_RN, members_RK, seeds_R), names, names)
        for key, scores_RN in zip(METRICS, scores_MRN, strict=True)
    }


def covariance(scores_RN: Array, members_RK: Array, seeds_R: Array) -> Array:
    """The covariance of objectives over samples of test images: the mean over runs of different seeds.

    Only differences matter, so what all objectives share is taken out.

    Args:
        members_RK: 1 where a run is of an objective.

    Returns:
        Shape (K, K), without negative eigenvalues.
    """
    centred_RN = scores_RN - scores_RN.mean(axis=1, keepdims=True)
    num_images = scores_RN.shape[1]
    others_RR = (seeds_R[:, None] != seeds_R).astype(float)
    shared_RR = centred_RN @ centred_RN.T / (num_images * max(num_images - 1, 1)) * others_RR
    means_KK = members_RK.T @ shared_RR @ members_RK / np.maximum(members_RK.T @ others_RR @ members_RK, 1)
    centring = np.eye(len(means_KK)) - 1 / len(means_KK)
    values, vectors = np.linalg.eigh(centring @ means_KK @ centring)
    positive: Array = vectors * np.maximum(values, 0) @ vectors.T  # an estimate of a variance may be negative
    return positive


FACTORS = ("pair", "triplet")


def crossed(objectives: Collection[Objective]) -> list[Objective]:
    """The objectives that form a whole grid: the weight that lacks most combinations goes, until none is missing."""
    left = list(objectives)
    while holes := [key for key in product(*levels_of(left)) if key not in left]:
        (part, weight), _ = Counter((part, key[part]) for key in reversed(holes) for part in (0, 1)).most_common(1)[0]
        left = [key for key in left if key[part] != weight]
    return left


def levels_of(objectives: Collection[Objective]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights of some objectives."""
    pairs, triplets = (list(dict.fromkeys(key[part] for key in objectives)) for part in (0, 1))
    return pairs, triplets


def weigh(values: pd.DataFrame, images: pd.DataFrame | None = None) -> Weights:
    """Average and compare the weights of a grid.

    A weight has a value for each seed that has all its cells. The interaction is compared over the seeds with the whole
    grid: what remains of an objective when the means of its row and column are subtracted.

    Args:
        values: as of `compare`, row by row.
        images: as of `compare`.

    Returns:
        Nothing with fewer than two pair or triplet weights.
    """
    names = crossed([(str(name[0]), str(name[1])) for name in values.dropna(axis=1, how="all").columns])
    pairs, triplets = levels_of(names)
    num_p, num_t = len(pairs), len(triplets)
    if min(num_p, num_t) < 2:
        return Weights()
    grid_SPT = values[names].to_numpy(float).reshape(-1, num_p, num_t)
    of_pairs, of_triplets = grid_SPT.mean(axis=2, keepdims=True), grid_SPT.mean(axis=1, keepdims=True)
    rest = (grid_SPT - of_pairs - of_triplets + grid_SPT.mean(axis=(1, 2), keepdims=True)).reshape(len(values), -1)
    mean_P, mean_T = np.full((1, num_p), 1 / num_p), np.full((1, num_t), 1 / num_t)

    def compared(values_SL: Array, labels: list[Any], to_LK: Array, free: int | None = None) -> Comparison[Any]:
        frame = pd.DataFrame(values_SL, columns=labels)
        if images is None:
            return compare(frame, free=free)
        of_images = to_LK @ images.loc[names, names].to_numpy() @ to_LK.T
        return compare(frame, pd.DataFrame(of_images, frame.columns, frame.columns), free=free)

    own = {"pair": (of_pairs[:, :, 0], pairs), "triplet": (of_triplets[:, 0], triplets)}
    return Weights(
        levels={
            (factor, level): CellSummary.of(column[~np.isnan(column)])
            for factor, (values_SL, levels) in own.items()
            for level, column in zip(levels, values_SL.T, strict=True)
        },
        comparisons={
            "pair": compared(*own["pair"], np.kron(np.eye(num_p), mean_T)),
            "triplet": compared(*own["triplet"], np.kron(mean_P, np.eye(num_t))),
            "interaction": compared(
                rest, names, np.kron(np.eye(num_p) - mean_P, np.eye(num_t) - mean_T), (num_p - 1) * (num_t - 1)
            ),
        },
    )
