r"""Text of any script for LaTeX: what to write, and what a document needs to compile it.

pdfLaTeX knows a character only if a package declares it, and stops at every other. So each run of one script becomes a
command that selects a font for it: CJKutf8 for Chinese, Japanese and Korean, the encoding T2A for Cyrillic. Accented
Latin letters become LaTeX's own accents, and Greek letters mathematics; both need no package. Of all other scripts
pdfLaTeX prints the code points. LuaLaTeX and XeLaTeX print every character that the document's font has.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

_SIGNS = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
    **{"∞": r"$\infty$", "±": r"$\pm$", "→": r"$\rightarrow$", "·": r"$\cdot$", "≈": r"$\approx$", "×": r"$\times$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "−": "$-$", "–": "--", "—": "---", "…": r"\dots{}", "°": r"$^{\circ}$"},
    **{"‘": "`", "’": "'", "“": "``", "”": "''", "\u00a0": "~", "²": "$^{2}$", "³": "$^{3}$", "µ": r"$\mu$"},
    **{"€": r"\texteuro{}", "§": r"\S{}", "©": r"\textcopyright{}", "®": r"\textregistered{}"},
    **{"ß": r"{\ss}", "æ": r"{\ae}", "Æ": r"{\AE}", "œ": r"{\oe}", "Œ": r"{\OE}", "ø": r"{\o}", "Ø": r"{\O}"},
    **{"ł": r"{\l}", "Ł": r"{\L}", "ı": r"{\i}", "å": r"{\aa}", "Å": r"{\AA}"},
}
# The T1 letters and ogonek that LaTeX's default encoding lacks; every LaTeX format knows T1 itself.
_T1 = {"đ": r"\dj", "Đ": r"\DJ", "ð": r"\dh", "Ð": r"\DH", "þ": r"\th", "Þ": r"\TH", "ŋ": r"\ng", "Ŋ": r"\NG"}
_OGONEK = "\u0328"
_ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": "."},
    **{"\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b"},
    "\u0326": "textcommabelow",
}
_GREEK_CAPITALS = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧ", "ABEZHIKMNOPTX", strict=True))
_GREEK_NAMES = {"final sigma": "varsigma", "omicron": "mathrm{o}", "lamda": "lambda"}
# The characters of CJKutf8's fonts are those of the national standards, which Python's codecs know.
_CJK_FONTS = (("gbsn", "gb2312"), ("bsmi", "big5"), ("min", "shift_jis"), ("mj", "euc_kr"))
_NEEDS = {
    r"\begin{CJK*}": r"\usepackage{CJKutf8}, with the fonts gbsn and bsmi (Chinese), min (Japanese) or mj (Korean)",
    "{T2A}": r"\usepackage[T2A,OT1]{fontenc} (or T1 in place of OT1)",
    r"\texttt{U+": "LuaLaTeX or XeLaTeX for some characters of the names, of which pdfLaTeX prints the code points",
}
"""What a document needs for what :func:`latex_text` writes."""


def latex_text(text: str) -> str:
    """A text for LaTeX, in one line; it is self-contained, so that captions may go into a list of tables."""
    runs = groupby(unicodedata.normalize("NFC", " ".join(text.split())), key=_kind)
    return "".join(_run(kind, "".join(characters)) for kind, characters in runs)


def requirements(packages: str, body: str) -> list[str]:
    """The first lines of a file: comments that name what its document must load.

    Args:
        packages: the packages that the table needs besides those for its scripts, separated by commas.
        body: the table, from :func:`latex_text` where it is text.
    """
    scripts = [need for mark, need in _NEEDS.items() if mark in body]
    if scripts:
        scripts.append("LuaLaTeX or XeLaTeX need fontspec instead, and a main font that has these characters")
    return [rf"% \usepackage{{{packages}}}", *(f"% {need}" for need in scripts)]


def _kind(character: str) -> str:
    if character.isascii() or character in _SIGNS or character in _T1:
        return "latin"
    name = unicodedata.name(character, "")
    if name.startswith("LATIN") and _accented(character) is not None:
        return "latin"
    if name.startswith("GREEK") and _greek(character) is not None:
        return "greek"
    if name.startswith("CYRILLIC") and (character in "ёЁ" or "А" <= character <= "я"):
        return "cyrillic"
    return "cjk" if any(_encodes(codec, character) for _, codec in _CJK_FONTS) else "other"


def _run(kind: str, text: str) -> str:
    if kind == "cyrillic":
        return _by_engine(text, rf"{{\fontencoding{{T2A}}\selectfont {text}}}")
    if kind == "cjk":
        return _cjk(text)
    if kind == "greek":
        return f"${''.join(_greek(character) or '' for character in text)}$"
    if kind == "other":
        return _by_engine(text, rf"\texttt{{{' '.join(f'U+{ord(character):04X}' for character in text)}}}")
    return "".join(_latin(character) for character in text)


def _by_engine(text: str, for_pdflatex: str) -> str:
    return rf"\ifdefined\Umathchar {text}\else{for_pdflatex}\fi{{}}"


def _latin(character: str) -> str:
    if character in _T1:
        return rf"{{\fontencoding{{T1}}\selectfont{_T1[character]}}}"
    return _SIGNS.get(character) or (character if character.isascii() else _accented(character) or "")


def _accented(character: str) -> str | None:
    r"""A letter with one of LaTeX's accents, ``ö`` as ``\"{o}``; None if LaTeX lacks the letter or the accent."""
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if len(accents) != 1 or not letter.isascii():
        return None
    (accent,) = accents
    if accent == _OGONEK:
        return rf"{{\fontencoding{{T1}}\selectfont\k{{{letter}}}}}"
    return rf"\{_ACCENTS[accent]}{{{letter}}}" if accent in _ACCENTS else None


def _greek(character: str) -> str | None:
    """A Greek letter in mathematics; None for letters outside the modern alphabet."""
    letter, *accents = list(unicodedata.normalize("NFD", character))
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z ]+)", unicodedata.name(letter, ""))
    if found is None or not set(accents) <= {"\u0301", "\u0308"} or not ("Α" <= letter <= "ω"):
        return None
    name = _GREEK_NAMES.get(found[2].lower(), found[2].lower())
    command = name if found[1] == "SMALL" else name.capitalize()
    text = rf"\mathrm{{{_GREEK_CAPITALS[letter]}}}" if letter in _GREEK_CAPITALS else f"\\{command}{{}}"
    for accent in accents:
        text = rf"\{'acute' if accent == chr(0x301) else 'ddot'}{{{text}}}"
    return text


def _cjk(text: str) -> str:
    """A run of Chinese, Japanese or Korean in the first font that has all of it, or else character by character."""
    japanese = any(unicodedata.name(c, "").startswith(("HIRAGANA", "KATAKANA")) for c in text)
    fonts = sorted(_CJK_FONTS, key=lambda font: font[0] != "min") if japanese else _CJK_FONTS
    for font, codec in fonts:
        if _encodes(codec, text):
            return _by_engine(text, rf"\begin{{CJK*}}{{UTF8}}{{{font}}}{text}\end{{CJK*}}")
    return "".join(map(_cjk, text))


def _encodes(codec: str, text: str) -> bool:
    try:
        encoded = text.encode(codec)
    except UnicodeEncodeError:
        return False
    return len(encoded) == 2 * len(text)  # one byte stands for half-width katakana, which the fonts lack
