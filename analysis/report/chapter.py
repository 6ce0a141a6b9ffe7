"""A part of a report that is not a block: paragraphs, tables and figures under one heading."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.report.sections import TextTable


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureLink:
    """A picture that lies in the report's folder."""

    path: str
    """The PNG, relative to the report's folder, with forward slashes."""
    title: str
    """What it shows, for those who see it and for those who do not."""
    note: str = ""
    """How to read it, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """One chapter, shown as paragraphs, then figures, then tables."""

    anchor: str
    """Its id in the HTML page: letters, digits and dashes, unique in the report."""
    title: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[FigureLink, ...] = ()
    tables: tuple[TextTable, ...] = ()
