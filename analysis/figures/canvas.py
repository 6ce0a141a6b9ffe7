"""What the figures share: the figure itself, its colours, how panels and legends look, and how it is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from goal_sweep.analysis.figures.fonts import families, pdf_font_type, wrapped

INK, FAINT, PALE = "#1f2328", "#59636e", "#8c959f"
"""Colours of text and lines in all figures, from strong to weak."""
TITLE_PLACE: Final[Mapping[str, Any]] = {"y": 1.0}
"""Of a panel's title. Without it matplotlib measures all ticks for a place, a tenth of a report's time."""
_TITLE, _NOTE = 12.0, 7.5
"""Sizes of texts, in points."""
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Half the time of the usual level; the files are an eighth larger.
    ".png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    ".pdf": {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}},
}


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any, names: str = "") -> None:
    """Draw a figure and save it; the same numbers give the same bytes.

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


def panels(
    shape: tuple[int, int],
    size: tuple[float, float],
    *,
    title: str = "",
    note: str = "",
    left: float = 0.6,
    right: float = 0.2,
    top: float = 0.3,
    bottom: float = 0.5,
    between: tuple[float, float] = (0.3, 0.5),
    **sharing: Any,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows and columns of panels, a title above and a note below; all lengths in inches.

    Matplotlib's own layout engines measure every text of a figure first, which takes as long as drawing it.

    Args:
        shape: rows and columns.
        size: width and height of a panel.
        title: in bold; it gets the room that it needs, and so does the note.
        note: how to read the figure.
        left: margin of the panels, for what they show beside them; likewise ``right``, ``top`` and ``bottom``.
        right: see ``left``.
        top: see ``left``.
        bottom: see ``left``.
        between: gaps between columns and between rows.
        sharing: ``sharex`` and ``sharey``, as for `Figure.subplots`.
    """
    (rows, columns), (wide, high) = shape, size
    width = left + columns * wide + (columns - 1) * between[0] + right
    heads, notes = wrapped(title, letters(width - 0.4, _TITLE)), wrapped(note, letters(width - 0.4, _NOTE))
    top, bottom = top + 0.22 * len(heads), bottom + 0.15 * len(notes)
    height = bottom + rows * high + (rows - 1) * between[1] + top
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=between[0] / wide,
        hspace=between[1] / high,
    )
    style: dict[str, Any] = {"size": _TITLE, "weight": "bold", "color": INK}
    figure.text(0.2 / width, 1 - 0.12 / height, "\n".join(heads), va="top", **style)
    figure.text(0.2 / width, 0.1 / height, "\n".join(notes), va="bottom", size=_NOTE, color=FAINT)
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing).tolist()


def letters(inches: float, size: float) -> int:
    """How many letters of a size in points fit."""
    return int(inches * 72 / (0.56 * size))


def style_panel(axes: Axes, title: str, x: str = "", y: str = "", *, grid: bool = True) -> None:
    """Give a panel its title, the names of its axes, small ticks and, if it is of lines, a faint grid."""
    axes.set_title(title, fontsize=9, color=INK, **TITLE_PLACE)
    axes.set_xlabel(x, fontsize=8.5)
    axes.set_ylabel(y, fontsize=8.5)
    axes.tick_params(labelsize=7)
    if grid:
        axes.grid(color="#e6e9ed", linewidth=0.5)


def colour_bar(figure: Figure, image: Any, label: str) -> None:
    """A colour bar in the right margin of an inch."""
    width, height = figure.get_size_inches()
    scale = figure.add_axes((1 - 0.85 / width, 0.5 - 0.8 / height, 0.15 / width, 1.6 / height))
    figure.colorbar(image, cax=scale, label=label)
