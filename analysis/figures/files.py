"""Writes figures to files: the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

from analysis.figures.fonts import families, make_drawable, pdf_font_type, texts_of, usual_family

_UNDATED: dict[str, dict[str, str | None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
_FASTER: Mapping[str, Any] = {".png": {"pil_kwargs": {"compress_level": 3}}}
"""Half the time of the usual level; the files are an eighth larger."""


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any) -> None:
    """Draw a figure and save it; fonts of this machine fill in for scripts that matplotlib's own font lacks.

    Args:
        paths: the files to write, ``.png`` or ``.pdf``; their folders must exist.
        draw: a function that returns the figure.
        arguments: the arguments of ``draw``.
    """
    with rc_context({"font.family": [usual_family()]}):
        figure = draw(*arguments)
        fonts = families(texts_of(figure))
        rcParams.update({"font.family": fonts, "pdf.fonttype": pdf_font_type(fonts)})
        if len(fonts) > 1:  # drawn again, because a text keeps the fonts that it was made with
            figure = draw(*arguments)
            make_drawable(figure)
        for path in paths:
            figure.savefig(path, metadata=_UNDATED[path.suffix], **_FASTER.get(path.suffix, {}))
