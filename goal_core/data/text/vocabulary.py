"""Captions to word ids as in VSE++: lower-case words, a count threshold, four special ids."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.text.stored import Tokenizer, check_words, frequent

START, END, UNK = 1, 2, 3
SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unk>")

_CLITIC = r"'(?:s|m|d|ll|re|ve)\b"
_TOKEN = re.compile(
    rf"""
      \w+?(?=n't\b) | n't\b                    # do n't
    | can(?=not\b)                             # can not
    | {_CLITIC}                                # it 's
    | (?:[^\W\d_]\.){{2,}}                     # u.s.
    | \d+(?:[.,:/]\d+)+(?:-\w+)*               # 1,000  3.5  12:30  1/2-inch
    | \w+(?:-\w+ | '(?!(?:s|m|d|ll|re|ve)\b)\w+)*   # red  black-and-white  o'clock
    | \.{{2,}} | -{{2,}}                       # ...  --
    | [^\w\s]                                  # any other sign by itself
    """,
    re.VERBOSE,
)
_TOGETHER = 1 << 12
"""Captions whose words are counted at a time."""
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'"})


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words and signs.

    Close to NLTK's ``word_tokenize``, which VSE++ used, without its data files. ``don't`` gives ``do n't``, ``man's``
    gives ``man 's``; hyphenated words and numbers stay whole; every other sign is a word by itself.

    Deviates: opening quotes stay ``"`` (NLTK rewrites them), ``gonna`` is not split, words joined by a slash are, a
    full stop is always split off (NLTK keeps those inside a text), a typographic apostrophe counts as a plain one, and
    text is NFC-normalised first.
    """
    return [word for part in _parts(caption) for word in _split(part)]


def word_counts(captions: Iterable[str]) -> Counter[str]:
    """How often each word of :func:`tokenize` occurs in captions."""
    counts, parts, rest = Counter[str](), Counter[str](), iter(captions)
    while together := "\n".join(islice(rest, _TOGETHER)):
        parts.update(_parts(together))
    for part, times in parts.items():
        for word in _split(part):
            counts[word] += times
    return counts


def _parts(caption: str) -> list[str]:
    return unicodedata.normalize("NFC", caption).lower().split()


# Captions repeat their words, and no word reaches across a space, so most calls are answered from the cache.
@lru_cache(maxsize=1 << 16)
def _split(part: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(part.translate(_APOSTROPHES)))


@dataclass(frozen=True, slots=True)
class Vocabulary(Tokenizer):
    """The known words. Ids 0 to 3 are ``<pad> <start> <end> <unk>``; word ``words[i]`` has id ``i + 4``.

    Raises:
        DataError: there is no word, or one occurs twice or is a special word.
    """

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
        """Collect the words of a corpus.

        Args:
            captions: the train and val captions, never the test captions.
            min_count: words that occur fewer times than this become ``<unk>``, at least 1.

        Raises:
            DataError: no word occurs that often.

        Source: VSE++ (vsepp/vocab.py), threshold 4.
        """
        return cls(tuple(frequent(word_counts(captions), min_count)))

    def encode(self, caption: str) -> list[int]:
        """Word ids of a caption between ``<start>`` and ``<end>``; at least these two, without an upper limit."""
        return [START, *(self._ids.get(word, UNK) for word in tokenize(caption)), END]

    def __len__(self) -> int:
        return len(self.words) + len(SPECIAL_WORDS)
