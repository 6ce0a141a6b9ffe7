"""The parts of a report: sections with figures, tables and data. They are plain values until the report is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from goal_sweep.analysis.blocks import BlockResults
from goal_sweep.analysis.figures.heatmap import draw_heatmap
from goal_sweep.goal_core.evaluation.metrics import measure_slug


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure of a report."""

    stem: str
    """Its file in the report's folder without an ending, with forward slashes."""
    title: str
    """What it shows; used as its caption and alternative text."""
    draw: Callable[..., Any]
    """A module's function that returns the figure."""
    arguments: tuple[Any, ...]

    @property
    def paths(self) -> tuple[str, str]:
        """Its files: the image that the pages show, and the one for print."""
        return f"{self.stem}.png", f"{self.stem}.pdf"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of text, for Markdown and HTML alike."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What a reader must know to read it, in full sentences."""
    words: int = 1
    """The number of leading columns with words; the others contain numbers and are aligned to the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTable:
    """One measure of a block, as a table and as a heatmap."""

    block: BlockResults
    measure: str
    """``R@1``, ``R@5``, ``R@10`` or ``rsum``."""
    colour: str
    """The block's full colour."""

    @property
    def heatmap(self) -> Picture:
        """Its figure."""
        title = f"Heatmap of {self.measure}: {self.block.key.title}"
        arguments = (self.block, self.colour, self.measure)
        return Picture(stem=f"heatmaps/{self.stem}", title=title, draw=draw_heatmap, arguments=arguments)

    @property
    def stem(self) -> str:
        """The name of its files without an ending."""
        return f"{self.block.key.slug}-{measure_slug(self.measure)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: warnings and paragraphs, then figures, then tables."""

    anchor: str
    """Its id in the page, unique in the report."""
    title: str
    num_missing: int = 0
    """The number of missing results, shown beside the title."""
    warnings: tuple[str, ...] = ()
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Picture, ...] = ()
    grids: tuple[GridTable, ...] = ()
    """Of a block's section; other sections have ``tables``."""
    tables: tuple[TextTable, ...] = ()
    folded: bool = False
    """Whether a block's tables are collapsed in the page: those of the axes' other configurations."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.warnings or self.paragraphs or self.figures or self.grids or self.tables)
