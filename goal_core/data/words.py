"""The words of captions, in any script: by Unicode's rules, and in English close to those that VSE++ counted."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

import regex

_LETTER = r"[\w\p{N}՚-՜՞׳]"  # Unicode's words: marks and joiners belong to them, and signs of Armenian and Hebrew
_END = rf"(?!{_LETTER})"
_INSIDE = r"(?:[·‧՟״]|(?<=\p{Hebrew})\"(?=\p{Hebrew}))"  # between letters, as in UAX 29
_CLITIC = rf"'(?:s|m|d|ll|re|ve)(?!{_LETTER}|-{_LETTER})"
_TOKEN = regex.compile(
    rf"""
      {_LETTER}+?(?=n't{_END}) | n't{_END}      # do n't
    | can(?=not{_END})                         # can not
    | {_CLITIC}                                # it 's
    | (?:(?![\d_]){_LETTER}\.){{2,}}           # u.s.
    | \d+(?:[.,:/]\d+)+{_LETTER}*(?:-{_LETTER}+)*   # 1,000  3.5mm  12:30  1/2-inch
    | {_LETTER}+(?:'?-{_LETTER}+ | (?!{_CLITIC})'{_LETTER}+ | {_INSIDE}{_LETTER}+)*   # red  bird's-eye  o'clock
    | \.{{2,}} | -{{2,}}                       # ...  --
    | (?!\s)\X                                # any other sign by itself, an emoji with what it is joined to
    """,
    regex.VERBOSE,
)
JOINERS = "\u200c\u200d"
_TAG = "\U000e0020-\U000e007f"
_LOST = f"(?<!\U0001f3f4[{_TAG}]{{0,9}})[{_TAG}]"
_UNSEEN = regex.compile(rf"[\p{{Cf}}--[\u200c\u200d{_TAG}]]|\p{{VS}}|{_LOST}", regex.V1)
"""What has no look of its own: variation selectors, marks of direction, soft hyphens. Joiners have, inside a word, and
tags after a black flag, which they make that of a country."""
_SEEN = regex.compile(r"[^\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]")
_SCRIPTS = r"\p{Han}\p{Hira}\p{Kana}ー\p{Thai}\p{Laoo}\p{Khmr}\p{Mymr}"
"""Those that put no spaces between words."""
_UNSPACED = regex.compile(rf"(?:[{_SCRIPTS}]\p{{P}}*+){{4}}")
"""More letters than most words have, in a row."""
_ALONE = regex.compile(rf"[^\s{_SCRIPTS}]+")
_TOGETHER = 1 << 12
"""Captions whose words are counted at a time."""
_PLAIN = ((rf"[’ʼ]|(?<={_LETTER})‘(?={_LETTER})", "'"), ("[‐‑]", "-"))
"""Typographic apostrophes and hyphens. ‘ counts only between letters, where Uzbek uses it."""
PORTABLE_TOKEN = "(?x)" + _TOKEN.pattern.replace(_LETTER, rf"{_LETTER[:-1]}{JOINERS}]")
"""`_TOKEN` for Oniguruma, whose letters are without joiners."""
LOOKS = (
    ("[\x1c-\x1f\u200b]", " "),  # which Python alone takes for spaces, and a space without width
    (rf"[\p{{Cf}}&&[^{JOINERS}{_TAG}]]|[\uFE00-\uFE0F\x{{E0100}}-\x{{E01EF}}\u180B-\u180D\u180F]", ""),
    (_LOST, ""),  # with the line above, `_UNSEEN`
    *_PLAIN,
)


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words and signs.

    Close to NLTK's ``word_tokenize``, which VSE++ used, without its data files. ``don't`` gives ``do n't``, ``man's``
    gives ``man 's``; hyphenated words and numbers stay whole, and words with a sign inside that UAX 29 takes for a
    part of them, in Catalan, Armenian and Hebrew; every other sign is a word by itself. Letters keep their combining
    marks, in every script; a script without spaces, such as Chinese or Thai, gives one word for a sentence.

    Deviates: opening quotes stay ``"`` (NLTK rewrites them), ``gonna`` is not split, words joined by a slash are, a
    full stop is always split off (NLTK keeps those inside a text), typographic apostrophes and hyphens count as
    plain ones, and text is NFC-normalised first.
    """
    return [word for part in _parts(caption) for word in _split(part)]


def is_seen(caption: str) -> bool:
    """Whether a caption has anything to see: more than spaces, and signs without a look such as zero-width ones."""
    return bool(_SEEN.search(caption))


def word_counts(captions: Iterable[str]) -> Counter[str]:
    """How often each word of :func:`tokenize` occurs in captions."""
    counts, parts, rest = Counter[str](), Counter[str](), iter(captions)
    while together := "\n".join(islice(rest, _TOGETHER)):
        parts.update(_parts(together))
    for part, times in parts.items():
        for word in _split(part):
            counts[word] += times
    return counts


def is_word(caption: str) -> bool:
    """Whether a caption is one word of a script that puts spaces between words, or one sign."""
    return bool(_ALONE.fullmatch(caption))


def unspaced(captions: Iterable[str]) -> int:
    """How many captions are in a script without spaces between words, so that :func:`tokenize` leaves them whole."""
    return sum(bool(_UNSPACED.search(caption)) for caption in captions)


def _parts(caption: str) -> list[str]:
    seen: str = _UNSEEN.sub("", unicodedata.normalize("NFC", caption).lower().replace("\u200b", " "))
    return seen.split()


# Captions repeat their words, and no word reaches across a space, so most calls are answered from the cache.
@lru_cache(maxsize=1 << 16)
def _split(part: str) -> tuple[str, ...]:
    for pattern, plain in _PLAIN:
        part = regex.sub(pattern, plain, part)
    return tuple(filter(None, (word.strip(JOINERS) for word in _TOKEN.findall(part))))
