"""Captions to ids: the tokenizers of the frameworks.

VSE++ has lower-case words, a count threshold, and four special ids. The others have BERT's word pieces, unchanged or
cleaned first as in X-VLM, or the ids of any stored tokenizer.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.files import content_of, text_in
from goal_sweep.goal_core.data.words import JOINERS, LOOKS, PORTABLE_TOKEN, tokenize, word_counts

PAD, START, END, UNK = range(4)
SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unk>")


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

    @property
    def unknown(self) -> int | None:
        """The id of unknown words; None where every word has ids of its own."""
        return None

    @property
    def longest(self) -> float:
        """Ids from which on a caption may be cut."""
        return math.inf

    def fills(self, ids: Sequence[int]) -> bool:
        """Whether a caption of so many ids leaves no room for more, so that what follows would be cut."""
        return True

    def portable(self) -> tuple[tokenizers.Tokenizer, str]:
        """The same of the `tokenizers` library, for the caller to change, and the captions that it reads otherwise."""
        raise DataError("a model that takes vectors in place of captions has no tokenizer and cannot be exported")

    def to_json(self) -> str:
        """The tokenizer as text; equal tokenizers give equal text."""
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return json.dumps({"format": self.stored_format, **settings}, ensure_ascii=False)


def frequent(counts: Mapping[str, int], min_count: int) -> list[str]:
    """Words that occur at least so often, by descending count, then alphabetically."""
    if kept := sorted((-count, word) for word, count in counts.items() if count >= min_count):
        return [word for _, word in kept]
    where = f"in the train and val captions ({len(counts)} different words)"
    raise DataError(f"no word occurs {min_count} times or more {where}; lower min_word_count")


def check_words(words: object, what: str, special: tuple[str, ...] = ()) -> None:
    """Check that stored words are a tuple of texts, each of them once and none of them special."""
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{what} must be a list of strings")
    if twice := [word for word, times in Counter((*special, *words)).items() if times > 1]:
        raise DataError(f"{what} are listed twice: {', '.join(twice[:5])}")


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


@dataclass(frozen=True, slots=True)
class Vocabulary(Tokenizer):
    """The known words. Ids 0 to 3 are ``<pad> <start> <end> <unk>``; word ``words[i]`` has id ``i + 4``."""

    stored_format: ClassVar[str] = "goal-vocabulary-1"

    words: tuple[str, ...]
    """By descending count, then alphabetically, so that equal corpora give equal ids."""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.words:
            raise DataError("the vocabulary is empty")
        check_words(self.words, "words of the vocabulary", SPECIAL_WORDS)
        ids = {word: index for index, word in enumerate((*SPECIAL_WORDS, *self.words))}
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> Vocabulary:
        """Collect the words of the train and val captions, never the test captions.

        Source: VSE++ (vsepp/vocab.py), threshold 4.
        """
        return cls(tuple(frequent(word_counts(captions), min_count)))

    def encode(self, caption: str) -> list[int]:
        """Word ids of a caption between ``<start>`` and ``<end>``; at least these two, without an upper limit."""
        return [START, *(self._ids.get(word, UNK) for word in tokenize(caption)), END]

    @property
    def unknown(self) -> int:
        """That of ``<unk>``."""
        return UNK

    def portable(self) -> tuple[tokenizers.Tokenizer, str]:
        """The words, split by the same expression; see :meth:`Tokenizer.portable`."""
        tokenizer = tokenizers.Tokenizer(models.WordLevel(dict(self._ids), unk_token="<unk>"))
        lowered = [normalizers.NFC(), normalizers.Lowercase()]
        tokenizer.normalizer = normalizers.Sequence([*lowered, *_replacing(*LOOKS)])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Split(Regex(PORTABLE_TOKEN), "removed", invert=True),
                pre_tokenizers.Split(Regex(rf"\A[{JOINERS}]+|[{JOINERS}]+\z"), "removed"),
            ]
        )
        ends = [(word, self._ids[word]) for word in (SPECIAL_WORDS[START], SPECIAL_WORDS[END])]
        tokenizer.post_processor = processors.TemplateProcessing(single="<start> $A <end>", special_tokens=ends)
        return tokenizer, "a word in capitals that ends in a Greek sigma; characters that only newer Unicode has"

    def __len__(self) -> int:
        return len(self.words) + len(SPECIAL_WORDS)


SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORDS = 30
"""Words that cleaning keeps of a caption."""
MAX_TOKENS = 40
"""Ids of a cleaned caption, `[CLS]` and `[SEP]` included."""
_LONGEST_WORD = 100
"""Longer basic tokens become `[UNK]`, as in BERT."""
_DROPPED = str.maketrans("-/", "  ", ",.'!?\"()*#:;~")
_CLEANING = (
    ("[,.'!?\"()*#:;~]", ""),
    ("[-/]", " "),
    ("<person>", "person"),
    (r"[\s\x1c-\x1f]{2,}", " "),
    (r"\A[ \n]+|[ \n]+\z", ""),
    (rf"\A(?:[^ ]* ){{{MAX_WORDS - 1}}}[^ ]*\K (?m:.*)", ""),
)
""":func:`clean_caption` as replacements, for Oniguruma."""
_SPLIT = pre_tokenizers.BertPreTokenizer()


@dataclass(frozen=True, slots=True)
class Wordpieces(Tokenizer):
    """A BERT vocabulary, which splits captions into word pieces."""

    stored_format: ClassVar[str] = "goal-wordpieces-3"

    pieces: tuple[str, ...]
    """Piece `i` has id `i`; `[PAD]` is 0."""
    lowercase: bool = True
    """Whether captions are first lower-cased and stripped of accents, as for the `uncased` models."""
    strip_accents: bool | None = None
    """Whether accents are stripped where that is not as `lowercase` says."""
    tokenize_chinese_chars: bool = True
    """Whether every Chinese character is a word."""
    positions: int = 512
    """Ids of the longest caption that the BERT reads."""
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
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=self.lowercase, strip_accents=self.strip_accents, handle_chinese_chars=self.tokenize_chinese_chars
        )
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
        return cls((*SPECIAL_PIECES, *frequent(Counter(word for words in split for word, _ in words), min_count)))

    @classmethod
    def from_file(cls, path: Path) -> Wordpieces:
        """Read a `vocab.txt`: one piece per line."""
        lines = text_in(content_of(path), path).split("\n")
        return cls(tuple(lines[:-1] if lines[-1] == "" else lines))

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """The ids of an encoded caption by its words, without special pieces; a piece `##s` continues a word."""
        words: list[list[int]] = []
        for piece in ids[1:-1]:
            if words and self.pieces[piece].startswith("##"):
                words[-1].append(piece)
            else:
                words.append([piece])
        return words

    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, `[CLS]` and `[SEP]` included, without an upper limit unless captions are cleaned."""
        kept = clean_caption(caption) if self.cleans else caption
        if self.cleans and not kept:
            raise DataError(f"{caption!r:.80} has no word without its punctuation, as X-VLM reads it")
        ids: list[int] = self._tokenizer.encode(kept).ids
        if len(ids) > self.positions:
            raise DataError(f"{caption!r:.80} has {len(ids)} ids, more than the {self.positions} that the BERT reads")
        return ids

    @property
    def unknown(self) -> int:
        """That of ``[UNK]``."""
        return self.pieces.index("[UNK]")

    @property
    def longest(self) -> float:
        """Of a cleaned caption, those of :data:`MAX_WORDS` words of one piece each."""
        return MAX_WORDS + 2 if self.cleans else math.inf

    def fills(self, ids: Sequence[int]) -> bool:
        """Whether a cleaned caption has as many ids or words as are kept."""
        return len(ids) >= MAX_TOKENS or len(self.words(ids)) >= MAX_WORDS

    def portable(self) -> tuple[tokenizers.Tokenizer, str]:
        """The word pieces, after the same cleaning; see :meth:`Tokenizer.portable`."""
        tokenizer = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        if not self.cleans:
            return tokenizer, ""
        cleaning = [normalizers.Lowercase(), *_replacing(*_CLEANING)]
        tokenizer.normalizer = normalizers.Sequence([*cleaning, tokenizer.normalizer])
        return tokenizer, "a caption of nothing but punctuation, which goal-sweep refuses"

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

    @property
    def unknown(self) -> int | None:
        """What the library's model gives for it."""
        model = json.loads(self.content)["model"]
        found: int | None = model.get("unk_id", self._tokenizer.token_to_id(model.get("unk_token") or ""))
        return found

    @property
    def longest(self) -> float:
        """As the library truncates."""
        return float((self._tokenizer.truncation or {}).get("max_length", math.inf))

    def portable(self) -> tuple[tokenizers.Tokenizer, str]:
        """The same; see :meth:`Tokenizer.portable`."""
        return tokenizers.Tokenizer.from_str(self._tokenizer.to_str()), ""

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())


def _replacing(*pairs: tuple[str, str]) -> list[normalizers.Normalizer]:
    """Normalizers that replace what matches an expression, one after the other."""
    return [normalizers.Replace(Regex(pattern), content) for pattern, content in pairs]


def clean_caption(caption: str) -> str:
    """A caption in lower case without punctuation, at most :data:`MAX_WORDS` words, or empty.

    Hyphens and slashes become blanks, ``<person>`` becomes `person`.

    Source: X-VLM's published `pre_caption`.
    """
    cleaned = caption.lower().translate(_DROPPED).replace("<person>", "person")
    return " ".join(re.sub(r"\s{2,}", " ", cleaned).strip(" \n").split(" ")[:MAX_WORDS])


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
