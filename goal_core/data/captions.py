"""The captions of a split as a model takes them: ids of words, or vectors."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.columns import kept_columns, write_columns
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.sealed_json import key_of
from goal_sweep.goal_core.data.dataset import RegionReader, Split
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.data.text.vocabulary import PAD


def captions_of(split: Split, tokenizer: Tokenizer) -> Captions:
    """The captions of a split: ids, or their vectors.

    Ids are made once a tokenizer, and kept beside the index.
    """
    if split.texts is not None:
        return CaptionVectors(split.texts, split.num_captions)
    if split.cache is None:
        return EncodedCaptions.of(split.captions, tokenizer, partial(_place, split))
    path = split.cache.with_name(f"{split.cache.name}-{key_of(tokenizer.to_json())}.tokens")
    if kept := kept_columns(path):
        return EncodedCaptions(**kept[0])
    fresh = EncodedCaptions.of(split.captions, tokenizer, partial(_place, split))
    with suppress(OSError):  # a disk that refuses it costs only time
        write_columns(path, fresh.columns(), {})
    return fresh


def _place(split: Split, caption: int) -> str:
    image = int(split.caption_image[caption])
    number = caption - int(np.searchsorted(split.caption_image, image))
    return f"split {split.name}, caption {number + 1} of {split.reader.label(image)}: "


class EncodedCaptions:
    """All captions of a split, at least one, as ids, one after the other (T,), and where each caption ends (N,)."""

    def __init__(self, ids: NDArray[np.int32], ends: NDArray[np.int64]) -> None:
        self._ids, self._ends = ids, ends

    @classmethod
    def of(
        cls, captions: Sequence[str], tokenizer: Tokenizer, place: Callable[[int], str] = lambda number: ""
    ) -> EncodedCaptions:
        """Encode captions; a `DataError` of one begins with its place, by its number."""
        ids, ends = array("i"), array("q")
        for number, caption in enumerate(captions):
            try:
                ids.extend(tokenizer.encode(caption))
            except DataError as error:
                raise DataError(f"{place(number)}{error}") from error
            ends.append(len(ids))
        return cls(np.array(ids, np.int32), np.array(ends, np.int64))

    def columns(self) -> dict[str, NDArray[Any]]:
        """What it is made of, by name."""
        return {"ids": self._ids, "ends": self._ends}

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
        """Ids (B, L) of captions, padded with 0 up to the longest of them, and their lengths (B,), at least 2."""
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
