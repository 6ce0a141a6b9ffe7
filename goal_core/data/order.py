"""Which caption is seen when: pure functions of the seed and the epoch, so any step can be found again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from goal_core.seeding import derive_seed


def epoch_order(num_captions: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which an epoch goes through the training captions.

    Drawn from a stream of its own: no other draw, worker or earlier epoch changes it. The permutation sorts raw
    64-bit draws, whose stream numpy keeps the same from version to version (its ``permutation`` may change).

    Args:
        num_captions: N, at least 1.
        seed: the cell's seed.
        epoch: number of the epoch, counted from 1 by the trainer; any integer works.

    Returns:
        A permutation of 0..N-1, (N,) int64.
    """
    keys = np.random.PCG64(derive_seed(seed, "order", epoch)).random_raw(num_captions)
    return np.argsort(keys, kind="stable").astype(np.int64)


def batch_indices(order: NDArray[np.int64], batch_size: int, drop_last: bool) -> list[NDArray[np.int64]]:
    """Cut an epoch's order into batches.

    Args:
        order: caption indices, (N,) int64.
        batch_size: pairs a batch, at least 2.
        drop_last: leave out the last batch when it is smaller. A last batch of a single pair is left out anyway:
            it has no negative.

    Returns:
        :func:`num_batches` views of ``order``.
    """
    starts = range(0, num_batches(len(order), batch_size, drop_last) * batch_size, batch_size)
    return [order[start : start + batch_size] for start in starts]


def num_batches(num_captions: int, batch_size: int, drop_last: bool) -> int:
    """Steps an epoch takes; see :func:`batch_indices`."""
    full, rest = divmod(num_captions, batch_size)
    return full + int(rest > 1 and not drop_last)


def sample_seed(seed: int, epoch: int, caption_index: int) -> int:
    """Seed of the augmentation of one image-caption pair in one epoch, in [0, 2^63)."""
    return derive_seed(seed, "augment", epoch, caption_index)
