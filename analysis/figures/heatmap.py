"""A block as a heatmap: the same grids and colours as in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.blocks import NEAR, Block, CellSummary, Grid
from analysis.figures.canvas import FAINT, INK, new_figure
from analysis.figures.colours import WHITE, ColourScale, scale_of, text_colour
from analysis.figures.fonts import drawable, text_width, wrapped
from sweeps.results import DIRECTION_TITLES

CELL: Final = (1.22, 0.56)
"""Width and height of a cell, in inches."""
_LEFT, _RIGHT, _BETWEEN, _TOP = 0.95, 0.25, 0.42, 1.12
_LINE, _EMPTY = "#d8dee4", "#f6f6f6"
_LONGEST = 46
"""The most room for the name of a weight, in points."""
_DPI = 150


def draw_heatmap(block: Block, colour: str, measure: str = "R@1") -> Figure:
    """Draw the heatmap of one block and measure.

    Both directions are side by side, each on its own colour scale. The best cell is bold and framed, the second best
    underlined; cells within noise of the best have a ring in their corner. A cell with missing seeds lists them, and an
    empty cell is hatched.

    Args:
        block: the block.
        colour: its full colour, RRGGBB or `CIVIDIS`.
        measure: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    grids = block.grids_of(measure)
    columns, rows = len(grids[0].triplets), len(grids[0].pairs)
    grid_width, grid_height = columns * CELL[0], rows * CELL[1]
    width = _LEFT + len(grids) * grid_width + (len(grids) - 1) * _BETWEEN + _RIGHT
    # Point sizes: 7.5 pt letters of this font are about 0.0585 inch wide.
    notes = wrapped(block.caption(measure).replace(f"{NEAR}:", "ring:"), int((width - 0.4) / 0.0585))
    title = wrapped(block.key.title, int((width - 0.4) / 0.098))
    top, bottom = _TOP + 0.22 * (len(title) - 1), 0.28 + 0.145 * len(notes)
    height = top + grid_height + bottom

    figure = new_figure(width, height, dpi=_DPI)
    figure.text(
        0.2 / width, 1 - 0.16 / height, "\n".join(title), ha="left", va="top", size=13, weight="bold", color=INK
    )
    for index, grid in enumerate(grids):
        left = _LEFT + index * (grid_width + _BETWEEN)
        axes = figure.add_axes((left / width, bottom / height, grid_width / width, grid_height / height))
        head = f"{DIRECTION_TITLES[grid.metric.direction]}   {grid.metric.name}"
        draw_grid(axes, grid, scale_of(grid, colour), head, with_rows=index == 0)
    figure.text(
        0.2 / width, 0.12 / height, "\n".join(notes), ha="left", va="bottom", size=7.5, color=FAINT, linespacing=1.3
    )
    return figure


def draw_frame(axes: Axes, pairs: Sequence[str], triplets: Sequence[str], head: str, *, with_rows: bool) -> None:
    """Draw what surrounds the cells of a grid: its title, the names of its weights and its outline."""
    axes.set_xlim(0, len(triplets))
    axes.set_ylim(len(pairs), 0)
    axes.axis("off")
    axes.text(len(triplets) / 2, -0.72, head, ha="center", va="center", size=11, color=INK)
    for x, triplet in enumerate(triplets):
        _draw_weight(axes, x + 0.5, -0.15, "T", triplet, centred=True)
    for y, pair in enumerate(pairs if with_rows else ()):
        _draw_weight(axes, -0.1, y + 0.57, "P", pair, centred=False)
    outline = Rectangle((0, 0), len(triplets), len(pairs), fill=False, edgecolor=_LINE, linewidth=1.6)
    outline.set(zorder=3, clip_on=False)
    axes.add_artist(outline)


def draw_grid(axes: Axes, grid: Grid, scale: ColourScale | None, head: str, *, with_rows: bool) -> None:
    """Draw one grid, its cells coloured on a scale, under a title."""
    draw_frame(axes, grid.pairs, grid.triplets, head, with_rows=with_rows)
    best, second = grid.best(), grid.second()
    for y, pair in enumerate(grid.pairs):
        for x, triplet in enumerate(grid.triplets):
            cell = grid.cells[pair, triplet]
            if cell.mean is None or scale is None:
                _draw_empty(axes, x, y, cell)
            else:
                fill = scale.colour(cell.mean)
                rank = 1 if (pair, triplet) in best else 2 if (pair, triplet) in second else 0
                _draw_number(axes, x, y, cell, fill, rank)
                _draw_ring(axes, x, y, fill, is_near=(pair, triplet) in grid.marked)


def _draw_number(axes: Axes, x: int, y: int, cell: CellSummary, fill: str, rank: int) -> None:
    mean, std = cell.text(with_n=False).split(" ± ")
    axes.add_artist(Rectangle((x, y), 1, 1, facecolor=f"#{fill}", edgecolor="white", linewidth=1.6))
    ink = "white" if text_colour(fill) == WHITE else INK
    if rank == 1:
        axes.add_artist(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, fill=False, edgecolor=ink, linewidth=1.1))
    middle = y + (0.36 if cell.gaps else 0.5)
    split = x + (0.5 if len(mean) <= 4 else 0.55)
    weight = "bold" if rank == 1 else "normal"
    axes.text(split - 0.015, middle, mean, ha="right", va="center_baseline", size=12, weight=weight, color=ink)
    axes.text(split + 0.015, middle, f"± {std}", ha="left", va="center_baseline", size=9, color=ink)
    if rank == 2:
        axes.plot([x + 0.14, x + 0.86], [middle + 0.2] * 2, color=ink, linewidth=0.9)
    if cell.gaps:
        note = f"n={cell.n}, {cell.gap_text}"
        axes.text(x + 0.5, y + 0.75, _fit(note, 27), ha="center", va="center", size=6.2, style="italic", color=ink)


def _draw_ring(axes: Axes, x: int, y: int, fill: str, *, is_near: bool) -> None:
    ink = "white" if text_colour(fill) == WHITE else INK
    if is_near:
        axes.plot(x + 0.92, y + 0.16, marker="o", markersize=3.6, markerfacecolor="none", color=ink, linewidth=0)


def _draw_empty(axes: Axes, x: int, y: int, cell: CellSummary) -> None:
    axes.add_artist(Rectangle((x, y), 1, 1, hatch="////", linewidth=0, facecolor=_EMPTY, edgecolor="#cfcfcf"))
    axes.add_artist(Rectangle((x, y), 1, 1, fill=False, edgecolor="white", linewidth=1.6))
    label = cell.gap_text.replace("; ", "\n") if cell.requested else "not in the sweep"
    lines = [_fit(line, 25) for line in (label or "--").split("\n")]
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.92}
    axes.text(
        x + 0.5, y + 0.5, "\n".join(lines), ha="center", va="center", size=6.8, color=FAINT, linespacing=1.2, bbox=box
    )


def _draw_weight(axes: Axes, x: float, y: float, letter: str, name: str, *, centred: bool) -> None:
    """Write a letter with a superscript name, centred at x or ending there.

    These are two plain texts, because matplotlib parses mathematics again for each file, a third of the drawing time.
    """
    name = drawable(name)
    # In points; the letter is as wide in this font at size 11, and a long name is shrunk.
    wide, raised = 7.4, text_width(name, 8)
    small = 8 * min(1.0, _LONGEST / max(raised, 1.0))
    start = -(wide + raised * small / 8) / (2 if centred else 1)
    for text, offset, size, style in ((letter, (start, 0), 11, "italic"), (name, (start + wide, 4), small, "normal")):
        axes.annotate(
            text, (x, y), offset, textcoords="offset points", size=size, style=style, color=INK, annotation_clip=False
        )


def _fit(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
