"""What turns captions into ids, whichever the framework."""

from __future__ import annotations

import json
from typing import Protocol

from goal_core.data.text.clean_captions import CleanedWordpieces
from goal_core.data.text.vocabulary import Vocabulary
from goal_core.data.text.wordpieces import Wordpieces
from goal_core.errors import DataError


class Tokenizer(Protocol):
    """Captions to ids; 0 is padding."""

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, at least one."""

    def __len__(self) -> int:
        """Number of ids."""

    def to_json(self) -> str:
        """The tokenizer as text."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read what a tokenizer's ``to_json`` wrote.

    Raises:
        DataError: the text is anything else.
    """
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise DataError(f"the stored tokenizer is not JSON: {error}") from error
    if isinstance(stored, dict) and Wordpieces.describes(stored):
        return Wordpieces.from_stored(stored)
    if isinstance(stored, dict) and CleanedWordpieces.describes(stored):
        return CleanedWordpieces.from_stored(stored)
    return Vocabulary.from_json(text)
