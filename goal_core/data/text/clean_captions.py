"""Captions as X-VLM cleans them before BERT's tokenizer sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from goal_core.data.text.wordpieces import Wordpieces
from goal_core.errors import DataError

MAX_WORDS = 30
MAX_TOKENS = 40
_FORMAT = "goal-cleaned-wordpieces-1"
_DROPPED = str.maketrans("-/", "  ", ",.'!?\"()*#:;~")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedWordpieces:
    """Word pieces of cleaned captions; a :class:`~goal_core.data.text.tokenizer.Tokenizer`."""

    wordpieces: Wordpieces

    def encode(self, caption: str) -> list[int]:
        """Ids between `[CLS]` and `[SEP]`, at most :data:`MAX_TOKENS` with both.

        Raises:
            DataError: nothing is left of the caption.
        """
        pieces = [piece for word in self.wordpieces.words(clean_caption(caption)) for piece in word]
        return self.wordpieces.wrap(pieces[: MAX_TOKENS - 2])

    def __len__(self) -> int:
        """Number of ids, specials included."""
        return len(self.wordpieces)

    def to_json(self) -> str:
        """The pieces as text."""
        return json.dumps({"format": _FORMAT, "wordpieces": json.loads(self.wordpieces.to_json())}, ensure_ascii=False)

    @classmethod
    def from_stored(cls, stored: Mapping[str, object]) -> CleanedWordpieces:
        """Read what :meth:`to_json` wrote, parsed.

        Raises:
            DataError: it is anything else.
        """
        inner = stored.get("wordpieces")
        if not isinstance(inner, dict) or not Wordpieces.describes(inner):
            raise DataError("the stored tokenizer holds no word pieces")
        return cls(wordpieces=Wordpieces.from_stored(inner))

    @staticmethod
    def describes(stored: Mapping[str, object]) -> bool:
        """Whether parsed text is of :meth:`to_json`."""
        return stored.get("format") == _FORMAT


def clean_caption(caption: str) -> str:
    """A caption in lower case without punctuation, at most :data:`MAX_WORDS` words.

    Hyphens and slashes become blanks, ``<person>`` becomes `person`.

    Raises:
        DataError: nothing is left of it.

    Source: X-VLM's published `pre_caption`.
    """
    cleaned = caption.lower().translate(_DROPPED).replace("<person>", "person")
    words = re.sub(r"\s{2,}", " ", cleaned).strip(" \n").split(" ")
    kept = " ".join(words[:MAX_WORDS])
    if not kept:
        raise DataError(f"caption {caption!r} is empty without its punctuation")
    return kept
