"""The figures of a block: its heatmap, with the grids and colours of the tables, and its learning curves."""

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from goal_sweep.analysis.blocks import NEAR, BlockResults, CellSummary, Grid
from goal_sweep.analysis.figures.canvas import (
    FAINT,
    INK,
    PALE,
    TITLE_PLACE,
    Picture,
    panels,
    scale_of,
    style_panel,
    text_colour,
)
from goal_sweep.goal_core.evaluation.metrics import DIRECTION_TITLES
from goal_sweep.goal_core.objectives.variants import objective_name

_CELL = (1.22, 0.56)
"""Width and height of a cell, in inches."""
_LONGEST = 9
"""Letters of the longest name of a pair weight that has the usual size."""


def draw_heatmap(block: BlockResults, colour: str, measure: str = "R@1") -> Picture:
    """Draw one measure of a block in its full colour, RRGGBB or `CIVIDIS`.

    Both directions are side by side, each on its own colour scale. The best cell is bold and framed, the second best
    underlined; cells not significantly below the best have the mark `NEAR`. A cell with missing seeds lists them, and
    an empty cell is hatched.
    """
    grids = block.grids_of(measure)
    size = (len(grids[0].triplets) * _CELL[0], len(grids[0].rows) * _CELL[1])
    rooms = {"left": 0.95, "top": 0.75, "bottom": 0.28}
    title, note = block.key.title, block.caption(measure)
    figure, (row,) = panels((1, len(grids)), size, title=title, note=note, **rooms, between=(0.42, 0))
    for index, (axes, grid) in enumerate(zip(row, grids, strict=True)):
        _draw_grid(axes, grid, colour, with_rows=index == 0)
    return figure


def _draw_grid(axes: Axes, grid: Grid, colour: str, *, with_rows: bool) -> None:
    width = len(grid.triplets)
    axes.set(xlim=(0, width), ylim=(len(grid.rows), 0))
    # An arrow is outside Latin-1, for which a PDF needs a second part of each font: half the time of a report.
    heading = f"{DIRECTION_TITLES[grid.metric.direction].replace('→', 'to')}   {grid.metric.name}"
    axes.set_title(heading, size=11, color=INK, pad=24, **TITLE_PLACE)
    axes.set_axis_off()
    for x, triplet in enumerate(grid.triplets):
        axes.text(x + 0.5, -0.15, f"T {triplet}", ha="center", va="bottom", size=10, color=INK)
    scale, best, second = scale_of(grid, colour), grid.best(), grid.second()
    for y, (letter, name, objectives) in enumerate(grid.rows):
        if with_rows:
            head = f"{letter} {name}".strip()
            size = 10 * min(1.0, _LONGEST / len(head))
            axes.text(-0.08, y + 0.5, head, ha="right", va="center_baseline", size=size, color=INK)
        for x, objective in enumerate(objectives):
            cell, place = grid.cells[objective], (x, y, width // len(objectives))
            if cell.mean is None or scale is None:
                _draw_empty(axes, place, cell)
                continue
            fill = scale(cell.mean)
            _draw_number(axes, place, cell, fill, 1 if objective in best else 2 if objective in second else 0)
            if objective in grid.marked:
                ink = f"#{text_colour(fill)}"
                axes.text(x + place[2] - 0.06, y + 0.24, NEAR, ha="right", va="center_baseline", size=9, color=ink)


def _draw_number(axes: Axes, place: tuple[int, int, int], cell: CellSummary, fill: str, rank: int) -> None:
    x, y, wide = place
    mean, std = cell.text(with_n=False).split(" ± ")
    axes.add_artist(Rectangle((x, y), wide, 1, facecolor=f"#{fill}", edgecolor="white", linewidth=1.6))
    ink, weight = f"#{text_colour(fill)}", "bold" if rank == 1 else "normal"
    if rank == 1:
        axes.add_artist(Rectangle((x + 0.03, y + 0.06), wide - 0.06, 0.88, fill=False, edgecolor=ink, linewidth=1.1))
    middle = y + (0.36 if cell.gaps else 0.5)
    split = x + wide / 2 + (0 if len(mean) <= 4 else 0.05)
    axes.text(split - 0.015, middle, mean, ha="right", va="center_baseline", size=12, weight=weight, color=ink)
    axes.text(split + 0.015, middle, f"± {std}", ha="left", va="center_baseline", size=9, color=ink)
    if rank == 2:  # below the mean, whose point is half as wide as a digit
        length = 0.087 * (len(mean) - 0.5)
        axes.plot([split - 0.015 - length, split - 0.015], [middle + 0.2] * 2, color=ink, linewidth=0.9)
    if cell.gaps:
        note = _fit(f"n={cell.n}, {cell.gap_text}", 27 * wide)
        axes.text(x + wide / 2, y + 0.75, note, ha="center", va="center", size=6.2, style="italic", color=ink)


def _draw_empty(axes: Axes, place: tuple[int, int, int], cell: CellSummary) -> None:
    x, y, wide = place
    axes.add_artist(Rectangle((x, y), wide, 1, hatch="///", linewidth=0, facecolor="#f6f6f6", edgecolor="#cfcfcf"))
    axes.add_artist(Rectangle((x, y), wide, 1, fill=False, edgecolor="white", linewidth=1.6))
    label = cell.gap_text.replace("; ", "\n") if cell.requested else "not in the sweep"
    text = "\n".join(_fit(line, 25 * wide) for line in (label or "--").split("\n"))
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.92}
    axes.text(x + wide / 2, y + 0.5, text, ha="center", va="center", size=6.8, color=FAINT, linespacing=1.2, bbox=box)


def _fit(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


_ROLE_STYLES: Final = {"best": ("#0072B2", "-"), "baseline": ("#000000", "--"), "worst": ("#D55E00", "-")}
"""Colours and dashes of the learning curves that stand out, of Okabe and Ito's palette."""
_OTHERS = "#c4cad1"


def draw_curves(
    title: str,
    quantities: Mapping[str, Mapping[tuple[str, str], pd.DataFrame]],
    roles: Mapping[tuple[str, str], str],
    warmup: int | None = None,
) -> Figure:
    """Learning curves: a panel for each quantity, a line for each objective.

    A few objectives stand out in colour, with a band from the smallest to the largest seed; the others are grey lines.
    Lines are means over seeds.

    Args:
        quantities: a quantity's label to its curves by ``(pair, triplet)``, with ``epoch``, ``mean``, ``min`` and
            ``max``.
        roles: the objectives that stand out, to ``best``, ``baseline``, ``worst`` or several of these, with commas.
        warmup: the last epoch of the warm-up, marked by a line; no line for None or 0.
    """
    columns = max(1, round(1.5 * len(quantities) - 1))
    bottom = 0.55 + 0.2 * -(-(len(roles) + 1) // columns)
    rooms: dict[str, Any] = {"left": 0.5, "top": 0.35, "bottom": bottom, "between": (0.5, 0)}
    figure, (row,) = panels((1, len(quantities)), (2.1, 1.9), title=title, **rooms)
    for axes, (quantity, found) in zip(row, quantities.items(), strict=True):
        for objective in sorted(found, key=lambda key: key in roles):
            _draw_line(axes, objective, found[objective], roles)
        if warmup:
            axes.axvline(warmup + 0.5, color=PALE, linewidth=0.7, linestyle=":")
        style_panel(axes, quantity, "epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = row[0].get_legend_handles_labels()
    entries = dict(zip(reversed(labels), reversed(handles), strict=True))
    place: dict[str, Any] = {"loc": "lower center", "ncols": min(len(entries), columns)}
    figure.legend(entries.values(), entries, fontsize=8.5, frameon=False, **place)
    return figure


def _draw_line(
    axes: Axes, objective: tuple[str, str], curve: pd.DataFrame, roles: Mapping[tuple[str, str], str]
) -> None:
    if objective not in roles:
        axes.plot(curve["epoch"], curve["mean"], color=_OTHERS, linewidth=0.8, label="others")
        return
    colour, dashes = _ROLE_STYLES[roles[objective].split(", ")[0]]
    label = f"{objective_name(*objective)} ({roles[objective]})"
    axes.plot(curve["epoch"], curve["mean"], color=colour, linestyle=dashes, linewidth=1.6, label=label)
    axes.fill_between(curve["epoch"], curve["min"], curve["max"], color=colour, alpha=0.2, linewidth=0)
