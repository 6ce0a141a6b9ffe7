"""What other test images would change: how the scores of objectives vary over the images of the test split.

A run is measured on a sample of images, and all runs of a block on the same one. The variance of a difference over new
seeds and new images is that over seeds, plus what images change for every seed alike: the covariance over images
between runs of *different* seeds. What they change for single runs is in the spread over seeds already.

Source: Obuchowski & Rockette 1995, Communications in Statistics 24:285-308 (there readers are what seeds are here, and
cases are images). An image and its captions are one case.
"""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import Array
from goal_sweep.goal_core.evaluation.metrics import METRICS


def image_scores(ranks: bytes) -> Array:
    """The scores of each test image, whose mean over the images is the metric, by row as in `METRICS`.

    The captions of an image may vary in number, so its share of a caption recall is that of a ratio of two sums.

    Returns:
        Shape (metrics, N), in points.
    """
    with np.load(io.BytesIO(ranks), allow_pickle=False) as saved:
        i2t_N, t2i_M, captions_N = (saved[name] for name in ("i2t", "t2i", "captions"))
    images_M = np.repeat(np.arange(len(captions_N)), captions_N)
    scores = {}
    for k in (1, 5, 10):
        hits_N = np.bincount(images_M, t2i_M < k, len(captions_N))
        recall = hits_N.sum() / len(t2i_M)
        scores[f"i2t_r{k}"] = 100.0 * (i2t_N < k)
        scores[f"t2i_r{k}"] = 100.0 * (recall + (hits_N - recall * captions_N) / captions_N.mean())
    scores["rsum"] = np.sum(list(scores.values()), axis=0)
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
