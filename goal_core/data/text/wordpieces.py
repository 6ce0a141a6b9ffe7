"""BERT's tokens: basic tokens cut into word pieces, between `[CLS]` and `[SEP]`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import models, normalizers, pre_tokenizers

from goal_core.errors import DataError

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FORMAT = "goal-wordpieces-1"
_LONGEST_WORD = 100
"""Longer basic tokens become `[UNK]`, as in BERT."""


@dataclass(frozen=True, slots=True)
class Wordpieces:
    """A BERT vocabulary and how to cut captions with it.

    Raises:
        DataError: a special piece is missing, `[PAD]` is not the first, or a piece is listed twice.
    """

    pieces: tuple[str, ...]
    """Piece `i` has id `i`; `[PAD]` is 0."""
    lowercase: bool = True
    """Whether captions lose capitals and accents first, as for the `uncased` models."""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)
    _normalizer: normalizers.BertNormalizer = field(init=False, repr=False, compare=False)
    _model: models.WordPiece = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the pieces."""
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        if len(ids) != len(self.pieces):
            raise DataError(f"{len(self.pieces) - len(ids)} word pieces are listed twice")
        missing = [piece for piece in SPECIAL_PIECES if piece not in ids]
        if missing:
            raise DataError(f"the word pieces lack {', '.join(missing)}")
        if ids["[PAD]"] != 0:
            raise DataError(f"[PAD] must be the first word piece, it is number {ids['[PAD]'] + 1}")
        object.__setattr__(self, "_ids", ids)
        object.__setattr__(self, "_normalizer", normalizers.BertNormalizer(lowercase=self.lowercase))
        model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD)
        object.__setattr__(self, "_model", model)

    @classmethod
    def of_captions(cls, captions: Iterable[str], min_count: int) -> Wordpieces:
        """Whole words of a corpus as pieces, for a BERT that is trained from scratch.

        Args:
            captions: the train and val captions; never the test captions.
            min_count: words seen fewer times than this become `[UNK]`, at least 1.

        Raises:
            DataError: no word is seen that often.
        """
        counts = Counter(word for caption in captions for word in basic_tokens(caption))
        kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        if not kept:
            raise DataError(f"no word occurs {min_count} times or more in the train and val captions")
        return cls((*SPECIAL_PIECES, *(word for _, word in kept)))

    @classmethod
    def from_file(cls, path: Path, *, lowercase: bool = True) -> Wordpieces:
        """Read a `vocab.txt`: one piece a line.

        Raises:
            DataError: the file is missing or is no vocabulary.
        """
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the word pieces {path}: {error}") from error
        return cls(tuple(lines[:-1] if lines[-1] == "" else lines), lowercase)

    def words(self, caption: str) -> list[list[int]]:
        """Piece ids of each basic token, without specials."""
        return [
            [token.id for token in self._model.tokenize(word)]
            for word in basic_tokens(caption, normalizer=self._normalizer)
        ]

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """Piece ids between `[CLS]` and `[SEP]`."""
        return [self._ids["[CLS]"], *ids, self._ids["[SEP]"]]

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, `[CLS]` and `[SEP]` included, no upper limit."""
        return self.wrap([piece for word in self.words(caption) for piece in word])

    @property
    def mask_id(self) -> int:
        """Id of `[MASK]`."""
        return self._ids["[MASK]"]

    def __len__(self) -> int:
        """Number of ids, specials included."""
        return len(self.pieces)

    def to_json(self) -> str:
        """The pieces as text."""
        return json.dumps({"format": _FORMAT, "lowercase": self.lowercase, "pieces": self.pieces}, ensure_ascii=False)

    @classmethod
    def from_stored(cls, stored: Mapping[str, object]) -> Wordpieces:
        """Read what :meth:`to_json` wrote, parsed.

        Raises:
            DataError: it is anything else.
        """
        pieces = stored.get("pieces")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise DataError("word pieces must be a list of strings")
        return cls(tuple(pieces), stored.get("lowercase") is not False)

    @staticmethod
    def describes(stored: Mapping[str, object]) -> bool:
        """Whether parsed text is of :meth:`to_json`."""
        return stored.get("format") == _FORMAT


_UNCASED = normalizers.BertNormalizer(lowercase=True)
_SPLIT = pre_tokenizers.BertPreTokenizer()


def basic_tokens(caption: str, *, normalizer: normalizers.BertNormalizer = _UNCASED) -> list[str]:
    """Words and punctuation marks of a caption, as BERT's basic tokenizer gives them."""
    return [word for word, _ in _SPLIT.pre_tokenize_str(normalizer.normalize_str(caption))]
