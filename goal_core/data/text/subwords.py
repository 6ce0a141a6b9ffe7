"""Captions to the ids of any model of the transformers library, by its own tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import tokenizers

from goal_core.basics.errors import DataError


@dataclass(frozen=True, slots=True)
class Subwords:
    """A tokenizer of the `tokenizers` library; a :class:`~goal_core.data.text.Tokenizer`.

    Raises:
        DataError: the content is not that of such a tokenizer.
    """

    stored_format: ClassVar[str] = "tokenizers"

    content: str
    """What the library writes into a `tokenizer.json`; truncation and special ids are part of it, padding is not."""
    _tokenizer: tokenizers.Tokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            tokenizer = tokenizers.Tokenizer.from_str(self.content)
        except Exception as error:  # the library raises nothing more special
            raise DataError(f"this is not a tokenizer: {error}") from error
        tokenizer.no_padding()
        object.__setattr__(self, "_tokenizer", tokenizer)

    @classmethod
    def from_stored(cls, stored: Mapping[str, object]) -> Subwords:
        """Read the parsed text of :meth:`to_json`."""
        return cls(str(stored.get("content")))

    def to_json(self) -> str:
        """The content as text."""
        return json.dumps({"format": self.stored_format, "content": self.content}, ensure_ascii=False)

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption with the model's special ids.

        Raises:
            DataError: there are none.
        """
        ids: list[int] = self._tokenizer.encode(caption).ids
        if not ids:
            raise DataError(f"caption {caption!r} has no ids")
        return ids

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())
