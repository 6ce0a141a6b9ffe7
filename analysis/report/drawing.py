"""Figures of a report that are drawn as two files and linked to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.figures import FigureWriter, write_figure
from analysis.report.document import FigureLink, ReportFolder


def linked_figure(
    folder: ReportFolder, figures: FigureWriter, stem: str, title: str, draw: Callable[..., Any], *arguments: Any
) -> FigureLink:
    """Have a figure drawn as ``STEM.png`` and ``STEM.pdf``.

    Args:
        folder: the report's folder.
        figures: writes the figure.
        stem: its name in the folder, without an ending.
        title: what the link is called.
        draw: a module's function that draws it.
        arguments: its arguments.
    """
    figures.submit(write_figure, [folder.path(f"{stem}.{ending}") for ending in ("png", "pdf")], draw, *arguments)
    return FigureLink(path=f"{stem}.png", title=title)
