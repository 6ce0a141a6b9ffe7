"""Tokenizers as they were stored, and a split's captions as padded batches of ids."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.basics.errors import DataError
from goal_core.data.text.stored import PAD, Tokenizer
from goal_core.data.text.vocabulary import Vocabulary
from goal_core.data.text.wordpieces import Subwords, Wordpieces

_PART = 1 << 16
"""Captions that are encoded at a time."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read the text of a tokenizer's ``to_json``.

    Raises:
        DataError: the text does not describe a tokenizer.
    """
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise DataError(f"the stored tokenizer is not JSON: {error}") from error
    kinds: dict[str, Any] = {kind.stored_format: kind for kind in (Vocabulary, Wordpieces, Subwords, TextVectors)}
    name = stored.pop("format", None) if isinstance(stored, dict) else None
    if name not in kinds:
        raise DataError(f"the stored tokenizer must be an object whose 'format' is one of {', '.join(kinds)}")
    expected = [field.name for field in fields(kinds[name]) if field.init]
    if set(stored) != set(expected):
        raise DataError(f"the stored tokenizer must be an object with 'format' and {', '.join(expected)}")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    made: Tokenizer = kinds[name](**settings)
    return made


@dataclass(frozen=True, slots=True)
class TextVectors(Tokenizer):
    """Stands for a tokenizer where each caption is a vector already."""

    stored_format: ClassVar[str] = "vectors"
    width: int
    """Numbers of each vector."""

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or self.width < 1:
            raise DataError(f"the width of stored vectors must be a whole number, got {self.width!r}")

    def encode(self, caption: str) -> list[int]:
        """Refuse: words have no vector here."""
        raise DataError(f"this model takes vectors of {self.width} numbers in place of captions")

    def __len__(self) -> int:
        return self.width


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
    """All captions of a split, at least one, as ids.

    Args:
        ids: of all captions, one after the other, (T,); it may be a file's map.
        ends: where each caption's end among them, (N,); likewise.
    """

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
