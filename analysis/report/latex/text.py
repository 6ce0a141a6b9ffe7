r"""Text of any script for LaTeX, and what a document needs to compile it.

pylatexenc writes the signs and letters that LaTeX has commands for. LuaLaTeX and XeLaTeX print all others if the
document's font has them; pdfLaTeX, which would stop at them, prints their code points.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from pylatexenc.latexencode import RULE_DICT, RULE_REGEX, UnicodeToLatexConversionRule, UnicodeToLatexEncoder


def _by_engine(character: str) -> str:
    return rf"\ifdefined\Umathchar {character}\else\texttt{{U+{ord(character):04X}}}\fi{{}}"


_ENCODER: Final = UnicodeToLatexEncoder(
    unknown_char_policy=_by_engine,
    unknown_char_warning=False,
    conversion_rules=[
        UnicodeToLatexConversionRule(RULE_DICT, {ord("|"): r"\textbar{}", ord("→"): r"\ensuremath{\rightarrow}"}),
        # pylatexenc's commands for Cyrillic need an encoding that few documents load.
        UnicodeToLatexConversionRule(RULE_REGEX, [(re.compile("[\u0400-\u04ff]"), lambda match: _by_engine(match[0]))]),
        "defaults",
    ],
)
_NEEDS: Final = {
    r"\\(k|dj|DJ|dh|DH|th|TH|ng|NG)\b": r"\usepackage[T1]{fontenc}",
    r"\\texttt\{U\+": "LuaLaTeX or XeLaTeX, fontspec, and a main font with the characters of the names, of which "
    "pdfLaTeX prints the code points",
}
"""What a document needs for what `latex_text` writes."""


def latex_text(text: str) -> str:
    """A text for LaTeX, in one line; it is self-contained, so that captions may go into a list of tables."""
    return str(_ENCODER.unicode_to_latex(unicodedata.normalize("NFC", " ".join(text.split()))))


def requirements(packages: str, body: str) -> list[str]:
    """The first lines of a file: comments that name what its document must load.

    Args:
        packages: the packages that the table needs besides those for its scripts, separated by commas.
        body: the table, from :func:`latex_text` where it is text.
    """
    needs = [need for mark, need in _NEEDS.items() if re.search(mark, body)]
    return [rf"% \usepackage{{{packages}}}", *(f"% {need}" for need in needs)]
