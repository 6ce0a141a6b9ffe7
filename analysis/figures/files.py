"""Writes figures to files: the same numbers give the same bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.figures.fonts import families, pdf_font_type

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # Half the time of the usual level; the files are an eighth larger.
    ".png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    ".pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
}


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any, names: str = "") -> None:
    """Draw a figure and save it.

    Args:
        paths: the files to write, ``.png`` or ``.pdf``; their folders must exist.
        draw: a function that returns the figure.
        arguments: the arguments of ``draw``.
        names: a text with every character that the figure may show besides the usual ones.
    """
    fonts = families(names)
    with rc_context({"font.family": fonts, "pdf.fonttype": pdf_font_type(fonts)}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the report's notes say which no font has
        figure = draw(*arguments)
        for path in paths:
            figure.savefig(path, **_OPTIONS[path.suffix])
