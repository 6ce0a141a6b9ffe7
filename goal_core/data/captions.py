"""The captions of a split as a model takes them: ids of words, or vectors."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.columns import kept_columns, write_columns
from goal_sweep.goal_core.basics.sealed_json import key_of
from goal_sweep.goal_core.data.dataset import RegionReader, Split
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.data.text.vocabulary import PAD

_PART = 1 << 16
"""Captions that are encoded at a time."""


def captions_of(split: Split, tokenizer: Tokenizer) -> Captions:
    """The captions of a split: ids, or their vectors.

    Ids are made once a tokenizer, and kept beside the index.
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


def encoded(captions: Sequence[str], tokenizer: Tokenizer) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Captions as ids, one after the other, and where each caption ends among all ids, part by part."""
    last = 0
    for start in range(0, len(captions), _PART):
        ids, ends = array("i"), array("q")
        for caption in captions[start : start + _PART]:
            ids.extend(tokenizer.encode(caption))
            ends.append(last + len(ids))
        last += len(ids)
        yield np.array(ids, np.int32), np.array(ends, np.int64)


class EncodedCaptions:
    """All captions of a split, at least one, as ids, one after the other (T,), and where each caption ends (N,)."""

    def __init__(self, ids: NDArray[np.int32], ends: NDArray[np.int64]) -> None:
        self._ids, self._ends = ids, ends

    @classmethod
    def of(cls, captions: Sequence[str], tokenizer: Tokenizer) -> EncodedCaptions:
        """Encode captions."""
        ids, ends = zip(*encoded(captions, tokenizer), strict=True)
        return cls(np.concatenate(ids), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids of each caption, those of its start and end included, (N,) int64."""
        return np.diff(self._ends, prepend=0)

    def ids(self, index: int) -> list[int]:
        """Ids of one caption."""
        ids: list[int] = self._ids[self._ends[index - 1] if index else 0 : self._ends[index]].tolist()
        return ids

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Ids of the captions at ``indices``, (B,) int64 in any order, B at least 1.

        Returns:
            Ids (B, L) int64, each row padded with 0 up to the longest of these captions, and the lengths (B,) int64,
            all at least 2. Both are on the CPU.
        """
        starts = np.where(indices > 0, self._ends[indices - 1], 0)
        lengths = self._ends[indices] - starts
        columns = np.arange(lengths.max())
        valid_BL = columns < lengths[:, None]
        positions_BL = np.where(valid_BL, starts[:, None] + columns, 0)
        tokens_BL = np.where(valid_BL, self._ids[positions_BL], PAD).astype(np.int64)
        return torch.from_numpy(tokens_BL), torch.from_numpy(lengths)


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
