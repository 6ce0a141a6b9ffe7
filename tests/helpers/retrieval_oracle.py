"""Recall by sorting whole rows of the similarity matrix, one query at a time, without the code under test."""

import numpy as np
from numpy.typing import NDArray


def oracle_ranks(
    sims: NDArray[np.floating], text_to_image: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks (i2t, t2i) of the best right answer, with wrong answers sorted before right ones of equal score."""
    num_images, num_texts = sims.shape
    i2t = np.empty(num_images, dtype=np.int64)
    for image in range(num_images):
        right = text_to_image == image
        order = sorted(range(num_texts), key=lambda text: (-sims[image, text], right[text]))
        i2t[image] = next(place for place, text in enumerate(order) if right[text])
    t2i = np.empty(num_texts, dtype=np.int64)
    for text in range(num_texts):
        owner = text_to_image[text]
        order = sorted(range(num_images), key=lambda image: (-sims[image, text], image == owner))
        t2i[text] = order.index(owner)
    return i2t, t2i


def oracle_metrics(sims: NDArray[np.floating], text_to_image: NDArray[np.integer]) -> dict[str, float]:
    """Recalls in percent and their sum, from :func:`oracle_ranks`."""
    i2t, t2i = oracle_ranks(sims, text_to_image)
    named = (("i2t", i2t), ("t2i", t2i))
    recalls = {f"{name}_r{k}": 100.0 * float(np.mean(ranks < k)) for name, ranks in named for k in (1, 5, 10)}
    return {**recalls, "rsum": sum(recalls.values())}
