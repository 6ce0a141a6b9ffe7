"""A block as a heatmap: the same grids and colours as in the tables."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.blocks import NEAR, Block, CellSummary, Grid
from analysis.figures.canvas import FAINT, INK, panels
from analysis.figures.colours import scale_of, text_colour
from analysis.figures.fonts import text_width
from sweeps.results import DIRECTION_TITLES

_CELL = (1.22, 0.56)
"""Width and height of a cell, in inches."""
_LONGEST = 52
"""The most room for the name of a pair weight, in points."""


def draw_heatmap(block: Block, colour: str, measure: str = "R@1") -> Figure:
    """Draw the heatmap of one block and measure.

    Both directions are side by side, each on its own colour scale. The best cell is bold and framed, the second best
    underlined; cells within noise of the best have the mark `NEAR`. A cell with missing seeds lists them, and an empty
    cell is hatched.

    Args:
        block: the block.
        colour: its full colour, RRGGBB or `CIVIDIS`.
        measure: ``R@1``, ``R@5``, ``R@10`` or ``rsum``.
    """
    grids = block.grids_of(measure)
    size = (len(grids[0].triplets) * _CELL[0], len(grids[0].pairs) * _CELL[1])
    rooms = {"left": 0.95, "top": 0.75, "bottom": 0.28}
    title, note = block.key.title, block.caption(measure)
    figure, (row,) = panels((1, len(grids)), size, title=title, note=note, **rooms, between=(0.42, 0))
    for index, (axes, grid) in enumerate(zip(row, grids, strict=True)):
        _draw_grid(axes, grid, colour, with_rows=index == 0)
    return figure


def _draw_grid(axes: Axes, grid: Grid, colour: str, *, with_rows: bool) -> None:
    axes.set(xlim=(0, len(grid.triplets)), ylim=(len(grid.pairs), 0))
    axes.set_title(f"{DIRECTION_TITLES[grid.metric.direction]}   {grid.metric.name}", size=11, color=INK, pad=24)
    for x, triplet in enumerate(grid.triplets):
        axes.text(x + 0.5, -0.15, f"T {triplet}", ha="center", va="bottom", size=10, color=INK)
    for y, pair in enumerate(grid.pairs if with_rows else ()):
        size = 10 * min(1.0, _LONGEST / text_width(f"P {pair}", 10))
        axes.text(-0.08, y + 0.5, f"P {pair}", ha="right", va="center_baseline", size=size, color=INK)
    axes.set_axis_off()
    scale, best, second = scale_of(grid, colour), grid.best(), grid.second()
    for index, (objective, cell) in enumerate(grid.cells.items()):
        y, x = divmod(index, len(grid.triplets))
        if cell.mean is None or scale is None:
            _draw_empty(axes, x, y, cell)
        else:
            rank = 1 if objective in best else 2 if objective in second else 0
            _draw_number(axes, x, y, cell, scale.colour(cell.mean), rank)
            if objective in grid.marked:
                ink = f"#{text_colour(scale.colour(cell.mean))}"
                axes.text(x + 0.94, y + 0.24, NEAR, ha="right", va="center_baseline", size=9, color=ink)


def _draw_number(axes: Axes, x: int, y: int, cell: CellSummary, fill: str, rank: int) -> None:
    mean, std = cell.text(with_n=False).split(" ± ")
    axes.add_artist(Rectangle((x, y), 1, 1, facecolor=f"#{fill}", edgecolor="white", linewidth=1.6))
    ink, weight = f"#{text_colour(fill)}", "bold" if rank == 1 else "normal"
    if rank == 1:
        axes.add_artist(Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, fill=False, edgecolor=ink, linewidth=1.1))
    middle = y + (0.36 if cell.gaps else 0.5)
    split = x + (0.5 if len(mean) <= 4 else 0.55)
    axes.text(split - 0.015, middle, mean, ha="right", va="center_baseline", size=12, weight=weight, color=ink)
    axes.text(split + 0.015, middle, f"± {std}", ha="left", va="center_baseline", size=9, color=ink)
    if rank == 2:
        axes.plot([x + 0.14, x + 0.86], [middle + 0.2] * 2, color=ink, linewidth=0.9)
    if cell.gaps:
        note = _fit(f"n={cell.n}, {cell.gap_text}", 27)
        axes.text(x + 0.5, y + 0.75, note, ha="center", va="center", size=6.2, style="italic", color=ink)


def _draw_empty(axes: Axes, x: int, y: int, cell: CellSummary) -> None:
    hatched = Rectangle((x, y), 1, 1, hatch="///", linewidth=0, facecolor="#f6f6f6", edgecolor="#cfcfcf")
    axes.add_artist(hatched)
    axes.add_artist(Rectangle((x, y), 1, 1, fill=False, edgecolor="white", linewidth=1.6))
    label = cell.gap_text.replace("; ", "\n") if cell.requested else "not in the sweep"
    text = "\n".join(_fit(line, 25) for line in (label or "--").split("\n"))
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.92}
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", size=6.8, color=FAINT, linespacing=1.2, bbox=box)


def _fit(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
