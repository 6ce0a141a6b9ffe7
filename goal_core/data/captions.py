"""The captions of a split as a model takes them: ids of words, or vectors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.dataset import RegionReader, Split
from goal_core.data.text import EncodedCaptions, Tokenizer


class Captions(Protocol):
    """The captions of a split."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids of each caption, (N,) int64; of vectors 1."""

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Some captions and their lengths, both on the CPU."""


def captions_of(split: Split, tokenizer: Tokenizer) -> Captions:
    """The captions of a split: ids, or their vectors."""
    return EncodedCaptions(split.captions, tokenizer) if split.texts is None else CaptionVectors(split.texts)


class CaptionVectors:
    """All captions of a split as vectors, which are read when they are needed."""

    def __init__(self, reader: RegionReader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ones, (N,) int64."""
        return np.ones(len(self), np.int64)

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Vectors of the captions at ``indices``, (B, G) float32, and ones, (B,) int64."""
        return torch.from_numpy(self._reader.rows(indices)), torch.ones(len(indices), dtype=torch.int64)
