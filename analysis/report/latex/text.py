r"""Text of any script for LaTeX, and what a document needs to compile it.

pylatexenc writes the signs and letters that LaTeX has commands for. Of the others, pdfLaTeX prints only those for which
a package selects a font, and stops at every other: so Chinese, Japanese and Korean get CJKutf8, Cyrillic the encoding
T2A, and all other scripts print their code points. LuaLaTeX and XeLaTeX print what the document's font has.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import groupby
from typing import Final

from pylatexenc.latexencode import RULE_DICT, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

_OWN: Final = {ord("|"): r"\textbar{}", ord("→"): r"\ensuremath{\rightarrow}"}
_ENCODER: Final = UnicodeToLatexEncoder(
    unknown_char_policy="keep",
    unknown_char_warning=False,
    conversion_rules=[
        UnicodeToLatexConversionRule(RULE_DICT, {ord("|"): r"\textbar{}", ord("→"): r"\ensuremath{\rightarrow}"}),
        "defaults",
    ],
)
# The characters of CJKutf8's fonts are those of the national standards, which Python's codecs know.
_CJK_FONTS: Final = {"gbsn": "gb2312", "bsmi": "big5", "min": "shift_jis", "mj": "euc_kr"}
_NEEDS: Final = {
    r"\\begin\{CJK\*\}": r"\usepackage{CJKutf8}, with the fonts gbsn and bsmi (Chinese), min (Japanese) or mj (Korean)",
    r"\{T2A\}": r"\usepackage[T2A,OT1]{fontenc} (or T1 in place of OT1)",
    r"\\(k|dj|DJ|dh|DH|th|TH|ng|NG)\b": r"\usepackage[T1]{fontenc}",
    r"\\texttt\{U\+": "LuaLaTeX or XeLaTeX for some characters of the names, of which pdfLaTeX prints the code points",
}
"""What a document needs for what `latex_text` writes."""


def latex_text(text: str) -> str:
    """A text for LaTeX, in one line; it is self-contained, so that captions may go into a list of tables."""
    runs = groupby(unicodedata.normalize("NFC", " ".join(text.split())), key=_script)
    return "".join(_written(script, "".join(characters)) for script, characters in runs)


def requirements(packages: str, body: str) -> list[str]:
    """The first lines of a file: comments that name what its document must load.

    Args:
        packages: the packages that the table needs besides those for its scripts, separated by commas.
        body: the table, from :func:`latex_text` where it is text.
    """
    scripts = [need for mark, need in _NEEDS.items() if re.search(mark, body)]
    if scripts:
        scripts.append("LuaLaTeX or XeLaTeX need fontspec instead, and a main font that has these characters")
    return [rf"% \usepackage{{{packages}}}", *(f"% {need}" for need in scripts)]


@cache
def _script(character: str) -> str:
    if unicodedata.name(character, "").startswith("CYRILLIC"):
        return "cyrillic" if character in "ёЁ" or "А" <= character <= "я" else "other"
    if character.isascii() or _ENCODER.unicode_to_latex(character) != character:
        return "known"
    return "cjk" if any(_encodes(codec, character) for codec in _CJK_FONTS.values()) else "other"


def _written(script: str, text: str) -> str:
    if script == "known":
        return str(_ENCODER.unicode_to_latex(text))
    if script == "cjk":
        return _cjk(text)
    code_points = " ".join(f"U+{ord(character):04X}" for character in text)
    is_cyrillic = script == "cyrillic"
    return _by_engine(
        text, rf"{{\fontencoding{{T2A}}\selectfont {text}}}" if is_cyrillic else rf"\texttt{{{code_points}}}"
    )


def _by_engine(text: str, for_pdflatex: str) -> str:
    return rf"\ifdefined\Umathchar {text}\else{for_pdflatex}\fi{{}}"


def _cjk(text: str) -> str:
    """A run of Chinese, Japanese or Korean in the first font that has all of it, or else character by character."""
    japanese = any(unicodedata.name(c, "").startswith(("HIRAGANA", "KATAKANA")) for c in text)
    for font in sorted(_CJK_FONTS, key=lambda font: font != "min") if japanese else _CJK_FONTS:
        if _encodes(_CJK_FONTS[font], text):
            return _by_engine(text, rf"\begin{{CJK*}}{{UTF8}}{{{font}}}{text}\end{{CJK*}}")
    return "".join(map(_cjk, text))


def _encodes(codec: str, text: str) -> bool:
    try:
        encoded = text.encode(codec)
    except UnicodeEncodeError:
        return False
    return len(encoded) == 2 * len(text)  # one byte stands for half-width katakana, which the fonts lack
