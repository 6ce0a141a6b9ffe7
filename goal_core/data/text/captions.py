"""Captions as padded batches of word ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.text.tokenizer import Tokenizer
from goal_core.data.text.vocabulary import PAD


class EncodedCaptions:
    """All captions of a split as word ids, held flat (4 bytes a word).

    Args:
        captions: any number of captions, at least 1.
        tokenizer: gives the ids.
    """

    def __init__(self, captions: Sequence[str], tokenizer: Tokenizer) -> None:
        ids = array("i")
        ends = array("q")
        for caption in captions:
            ids.extend(tokenizer.encode(caption))
            ends.append(len(ids))
        self._ids = np.array(ids, dtype=np.int32)
        self._starts = np.array([0, *ends[:-1]], dtype=np.int64)
        self._lengths = np.array(ends, dtype=np.int64) - self._starts

    def __len__(self) -> int:
        """Number of captions."""
        return len(self._lengths)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Words of each caption, ``<start>`` and ``<end>`` included, (N,) int64."""
        return self._lengths

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Word ids of some captions.

        Args:
            indices: which captions, (B,) int64, in any order, B at least 1.

        Returns:
            Word ids (B, L) int64, each row padded with 0 up to the longest of these captions, and the
            lengths (B,) int64, all at least 2. Both on the CPU, rows in the order of ``indices``.
        """
        lengths = self._lengths[indices]
        columns = np.arange(lengths.max())
        valid_BL = columns < lengths[:, None]
        positions_BL = np.where(valid_BL, self._starts[indices][:, None] + columns, 0)
        tokens_BL = np.where(valid_BL, self._ids[positions_BL], PAD).astype(np.int64)
        return torch.from_numpy(tokens_BL), torch.from_numpy(lengths)

    def chunks(self, chunk_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All captions in order, ``chunk_size`` at a time (the last may be smaller); each as :meth:`batch`."""
        for start in range(0, len(self), chunk_size):
            yield self.batch(np.arange(start, min(start + chunk_size, len(self))))
