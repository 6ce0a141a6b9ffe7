"""Tokenizers as they were stored."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.text.stored import Tokenizer
from goal_sweep.goal_core.data.text.vocabulary import Vocabulary
from goal_sweep.goal_core.data.text.wordpieces import Subwords, Wordpieces


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
