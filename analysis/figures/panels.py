"""Figures of many panels in a grid, laid out in inches.

Matplotlib's own layout engines measure every text of a figure first, which takes as long as drawing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_DPI = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Room around the panels, in inches, for their labels and the figure's title and legend."""

    left: float
    right: float
    top: float
    bottom: float
    between: float
    """Between two panels, both ways."""


def panels(
    shape: tuple[int, int], size: tuple[float, float], margins: Margins, *, sharey: Literal["row", "all"] = "all"
) -> tuple[Figure, list[list[Axes]]]:
    """A figure and its panels.

    Args:
        shape: rows and columns.
        size: width and height of a panel, in inches.
        margins: around them.
        sharey: which panels have one vertical axis; all have one horizontal axis.

    Returns:
        The figure, for Agg and files, and its axes by row and column.
    """
    (rows, columns), (wide, high) = shape, size
    width = margins.left + columns * wide + (columns - 1) * margins.between + margins.right
    height = margins.bottom + rows * high + (rows - 1) * margins.between + margins.top
    figure = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(
        left=margins.left / width,
        right=1 - margins.right / width,
        bottom=margins.bottom / height,
        top=1 - margins.top / height,
        wspace=margins.between / wide,
        hspace=margins.between / high,
    )
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=sharey).tolist()
