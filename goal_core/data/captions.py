"""The captions of a split as a model takes them: ids of words, or vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.basics.sealed_json import key_of
from goal_core.data.columns import kept_columns, write_columns
from goal_core.data.dataset import RegionReader, Split
from goal_core.data.text import EncodedCaptions, Tokenizer
from goal_core.data.text.tokenizer import encoded


def captions_of(split: Split, tokenizer: Tokenizer) -> Captions:
    """The captions of a split: ids, or their vectors.

    Ids are made once a tokenizer, and kept beside the index; all processes map the same file.
    """
    if split.texts is not None:
        return CaptionVectors(split.texts, split.num_captions)
    if split.cache is None:
        return EncodedCaptions.of(split.captions, tokenizer)
    path = split.cache.with_name(f"{split.cache.name}-{key_of(tokenizer.to_json())}.tokens")
    kept = kept_columns(path)
    if kept is None:
        with suppress(OSError):  # a disk that refuses it costs only time
            _keep(path, split.captions, tokenizer)
        kept = kept_columns(path)
    return EncodedCaptions.of(split.captions, tokenizer) if kept is None else EncodedCaptions(**kept[0])


def _keep(path: Path, captions: Sequence[str], tokenizer: Tokenizer) -> None:
    """Encode captions into a file, part by part, so that not all are in memory."""
    with TemporaryFile(dir=path.parent) as ids, TemporaryFile(dir=path.parent) as ends:
        for of_part, ends_of_part in encoded(captions, tokenizer):
            ids.write(of_part.data)
            ends.write(ends_of_part.data)
        ids.flush()
        ends.flush()
        write_columns(path, {"ids": np.memmap(ids, np.int32, "r"), "ends": np.memmap(ends, np.int64, "r")}, {})


class CaptionVectors:
    """The first captions of a split as vectors, in memory or read when they are needed."""

    def __init__(self, vectors: RegionReader | NDArray[np.float32], num_captions: int) -> None:
        self._vectors, self._num_captions = vectors, num_captions

    def __len__(self) -> int:
        return self._num_captions

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ones, (N,) int64."""
        return np.ones(len(self), np.int64)

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Vectors of the captions at ``indices``, (B, G) float32, and ones, (B,) int64."""
        held = self._vectors[indices] if isinstance(self._vectors, np.ndarray) else self._vectors.rows(indices)
        return torch.from_numpy(held), torch.ones(len(indices), dtype=torch.int64)


Captions = EncodedCaptions | CaptionVectors
