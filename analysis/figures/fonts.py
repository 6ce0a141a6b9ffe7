"""Text of any script in figures: fonts of this machine fill in for what matplotlib's own font lacks.

Each PDF contains the letters that it shows. To take them from matplotlib's font, which has six thousand, took more time
than everything else in a report. So a process first makes a small font of the usual letters, which look the same.
"""

from __future__ import annotations

import atexit
import logging
import textwrap
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import printable
from tempfile import TemporaryDirectory
from typing import Final

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from matplotlib import rcParams
from matplotlib.font_manager import FontEntry, FontProperties, findSystemFonts, fontManager, get_font
from matplotlib.textpath import TextPath

_PREFERRED = ("Noto Sans", "Source Han Sans", "WenQuanYi", "Droid Sans", "Hiragino", "PingFang", "Microsoft", "Malgun")
"""Beginnings of the names of fonts that go well with matplotlib's own, best first."""
_OWN = "DejaVu Sans"
"""Matplotlib's own font."""
_USUAL = frozenset(printable + "±²×·αβγδεηθλμπρστχω–—‘’“”…←→↔−≈≠≤≥∞")
"""The characters of the small font."""
_FACES: Final = {"Regular": _OWN, "Bold": f"{_OWN}:bold", "Oblique": f"{_OWN}:italic"}
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")
"""Categories of characters that leave no ink: controls, joiners and spaces."""
# Few of these fonts have a bold face; the regular one will do.
logging.getLogger("matplotlib.font_manager").addFilter(lambda record: "find font weight" not in record.getMessage())


def undrawable(text: str) -> str:
    """The characters of a text that no font of this machine has, each once; figures show boxes for them."""
    return "".join(character for character in _lacking(text) if _font(character) is None)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width`` Latin letters; a Chinese character counts as two."""
    filler = "\uffff"
    wide = "".join(c + filler * (unicodedata.east_asian_width(c) in "WF") for c in text)
    return [line.replace(filler, "") for line in textwrap.wrap(wide, width)]


def text_width(text: str, size: float) -> float:
    """The width of a text in points of the given font size, in the fonts of the figure that is being drawn."""
    shape = TextPath((0, 0), text, size=size, prop=FontProperties(family=rcParams["font.family"]))
    return float(shape.get_extents().width)


@cache
def families(text: str) -> list[str]:
    """Font families for a text: the small one, matplotlib's own, then others with the characters that it lacks."""
    if _USUAL.issuperset(text):
        return [usual_family()]
    return [usual_family(), _OWN, *dict.fromkeys(filter(None, map(_font, _lacking(text))))]


@cache
def usual_family() -> str:
    """The family of the small font, which is made on the first call."""
    folder, name = TemporaryDirectory(prefix="goal-sweep-fonts-"), "Goal Sweep Sans"
    atexit.register(folder.cleanup)
    logging.getLogger("fontTools.subset").setLevel(logging.ERROR)  # it names tables that it leaves out
    for face, pattern in _FACES.items():
        # Without a new time stamp the same text gives the same PDF.
        font = TTFont(fontManager.findfont(FontProperties(pattern)), recalcTimestamp=False)
        options = Options(layout_features=["kern", "liga"], layout_scripts=["DFLT", "latn"], notdef_outline=True)
        options.drop_tables += ["MATH"]
        subsetter = Subsetter(options)
        subsetter.populate(text="".join(_USUAL))
        subsetter.subset(font)
        for number, text in {1: name, 2: face, 4: f"{name} {face}", 6: f"GoalSweepSans-{face}", 16: name}.items():
            font["name"].setName(text, number, 3, 1, 0x409)
        path = Path(folder.name, f"{face}.ttf")
        font.save(path)
        fontManager.addfont(path)
    return name


def pdf_font_type(names: Iterable[str]) -> int:
    """The type of fonts in PDF: 42 (TrueType), because journals refuse 3, or 3 where a font is not TrueType."""
    files = (entry.fname for name in names for entry in fontManager.ttflist if entry.name == name)
    return 42 if all(file.lower().endswith(".ttf") for file in files) else 3


def _lacking(text: str) -> str:
    """The characters that matplotlib's own font lacks, each once; it has all of ASCII."""
    if text.isascii():
        return ""
    own = _characters(fontManager.findfont(FontProperties(family=_OWN)))
    return "".join(c for c in dict.fromkeys(text) if ord(c) not in own and unicodedata.category(c) not in _UNSEEN)


@cache
def _font(character: str) -> str | None:
    """The best family that has a character; None if no font has it."""
    having = (entry.name for entry in _entries() if ord(character) in _characters(entry.fname))
    return next(having, None)


@cache
def _entries() -> list[FontEntry]:
    """All fonts, best first; matplotlib lists a machine's fonts only once, so new ones are added."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            fontManager.addfont(path)
    # Matplotlib's font of last resort has a placeholder for every character.
    return sorted((e for e in fontManager.ttflist if not e.name.startswith("Last Resort")), key=_preference)


def _preference(entry: FontEntry) -> tuple[int, bool, bool, str]:
    rank = next((i for i, name in enumerate(_PREFERRED) if entry.name.startswith(name)), len(_PREFERRED))
    return rank, "Sans" not in entry.name, entry.weight != 400 or entry.style != "normal", entry.name


@cache
def _characters(path: str) -> frozenset[int]:
    return frozenset(get_font(path).get_charmap())
