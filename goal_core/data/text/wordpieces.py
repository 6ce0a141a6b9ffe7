"""Captions to BERT's word pieces, unchanged or cleaned first as in X-VLM, or to the ids of any stored tokenizer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.user_files import content_of, text_in
from goal_sweep.goal_core.data.text.vocabulary import TextVectors, Tokenizer, Vocabulary, check_words, frequent

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORDS = 30
"""Words that cleaning keeps of a caption."""
MAX_TOKENS = 40
"""Ids of a cleaned caption, `[CLS]` and `[SEP]` included."""
_LONGEST_WORD = 100
"""Longer basic tokens become `[UNK]`, as in BERT."""
_DROPPED = str.maketrans("-/", "  ", ",.'!?\"()*#:;~")
_SPLIT = pre_tokenizers.BertPreTokenizer()


@dataclass(frozen=True, slots=True)
class Wordpieces(Tokenizer):
    """A BERT vocabulary, which splits captions into word pieces."""

    stored_format: ClassVar[str] = "goal-wordpieces-2"

    pieces: tuple[str, ...]
    """Piece `i` has id `i`; `[PAD]` is 0."""
    lowercase: bool = True
    """Whether captions are first lower-cased and stripped of accents, as for the `uncased` models."""
    cleans: bool = False
    """Whether captions are first cleaned as in X-VLM (:func:`clean_caption`), and cut to :data:`MAX_TOKENS` ids."""
    _tokenizer: tokenizers.Tokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_words(self.pieces, "word pieces")
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
            raise DataError(f"the word pieces lack {', '.join(missing)}")
        if ids["[PAD]"] != 0:
            raise DataError(f"[PAD] must be the first word piece, it is number {ids['[PAD]'] + 1}")
        model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD)
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        tokenizer.pre_tokenizer = _SPLIT
        if self.cleans:
            tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
        object.__setattr__(self, "_tokenizer", tokenizer)

    @classmethod
    def of_captions(cls, captions: Iterable[str], min_count: int) -> Wordpieces:
        """Whole words of a corpus as pieces, for a BERT that is trained from scratch."""
        uncased = normalizers.BertNormalizer(lowercase=True)
        split = (_SPLIT.pre_tokenize_str(uncased.normalize_str(caption)) for caption in captions)
        counts = Counter(word for words in split for word, _ in words)
        return cls((*SPECIAL_PIECES, *frequent(counts, min_count)))

    @classmethod
    def from_file(cls, path: Path, *, lowercase: bool = True) -> Wordpieces:
        """Read a `vocab.txt`: one piece per line."""
        lines = text_in(content_of(path), path).split("\n")
        return cls(tuple(lines[:-1] if lines[-1] == "" else lines), lowercase)

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """The ids of an encoded caption by its words, without special pieces; a piece `##s` continues a word."""
        words: list[list[int]] = []
        for piece in ids[1:-1]:
            if words and self.pieces[piece].startswith("##"):
                words[-1].append(piece)
            else:
                words.append([piece])
        return words

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """Piece ids between `[CLS]` and `[SEP]`."""
        return [self.pieces.index("[CLS]"), *ids, self.pieces.index("[SEP]")]

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, `[CLS]` and `[SEP]` included, without an upper limit unless captions are cleaned."""
        kept = clean_caption(caption) if self.cleans else caption
        if self.cleans and not kept:
            raise DataError(f"{caption!r:.80} has no word without its punctuation, as X-VLM reads it")
        ids: list[int] = self._tokenizer.encode(kept).ids
        return ids

    @property
    def mask_id(self) -> int:
        """Id of `[MASK]`."""
        return self.pieces.index("[MASK]")

    def __len__(self) -> int:
        return len(self.pieces)


@dataclass(frozen=True, slots=True)
class Subwords(Tokenizer):
    """A tokenizer of the `tokenizers` library."""

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

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption with the model's special ids."""
        ids: list[int] = self._tokenizer.encode(caption).ids
        if not ids:
            raise DataError(f"caption {caption!r} has no ids")
        return ids

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())


def clean_caption(caption: str) -> str:
    """A caption in lower case without punctuation, at most :data:`MAX_WORDS` words, or empty.

    Hyphens and slashes become blanks, ``<person>`` becomes `person`.

    Source: X-VLM's published `pre_caption`.
    """
    cleaned = caption.lower().translate(_DROPPED).replace("<person>", "person")
    words = re.sub(r"\s{2,}", " ", cleaned).strip(" \n").split(" ")
    return " ".join(words[:MAX_WORDS])


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read the text of a tokenizer's ``to_json``."""
    try:
        stored = json.loads(text)
    except ValueError as error:
        raise DataError(f"the stored tokenizer is not JSON: {error}") from error
    kinds: dict[str, Any] = {kind.stored_format: kind for kind in (Vocabulary, Wordpieces, Subwords, TextVectors)}
    name = stored.pop("format", None) if isinstance(stored, dict) else None
    if name not in kinds:
        raise DataError(f"the stored tokenizer must be an object whose 'format' is one of {', '.join(kinds)}")
    expected = [one.name for one in fields(kinds[name]) if one.init]
    if set(stored) != set(expected):
        raise DataError(f"the stored tokenizer must be an object with 'format' and {', '.join(expected)}")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    made: Tokenizer = kinds[name](**settings)
    return made
