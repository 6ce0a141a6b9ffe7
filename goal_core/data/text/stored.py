"""What all tokenizers have in common, which is also how they are stored."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from goal_sweep.goal_core.basics.errors import DataError

PAD = 0


@dataclass(frozen=True, slots=True)
class Tokenizer(ABC):
    """Turns captions into ids; 0 is padding. The values of its fields are what is stored of it."""

    stored_format: ClassVar[str]

    @abstractmethod
    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, at least one."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of ids, special ones included."""

    def to_json(self) -> str:
        """The tokenizer as text; equal tokenizers give equal text."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        return json.dumps({"format": self.stored_format, **settings}, ensure_ascii=False)


def frequent(counts: Mapping[str, int], min_count: int) -> list[str]:
    """Words that occur at least so often, by descending count, then alphabetically.

    Raises:
        DataError: there is none.
    """
    if kept := sorted((-count, word) for word, count in counts.items() if count >= min_count):
        return [word for _, word in kept]
    raise DataError(
        f"no word occurs {min_count} times or more in the train and val captions ({len(counts)} different words); "
        "lower min_word_count"
    )


def check_words(words: object, what: str, special: tuple[str, ...] = ()) -> None:
    """Check that stored words are a tuple of texts, each of them once and none of them special."""
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{what} must be a list of strings")
    if twice := [word for word, times in Counter((*special, *words)).items() if times > 1]:
        raise DataError(f"{what} are listed twice: {', '.join(twice[:5])}")
