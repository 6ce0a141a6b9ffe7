"""Recall against the values of one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from analysis.blocks import CellSummary, Objective
from analysis.figures.colours import INK, PAIR_STYLES, PALE
from analysis.figures.fonts import drawable
from analysis.run_schema import PAIRS, TRIPLETS, Metric, in_order

_DPI = 150
_LOG_SPAN: Final = 5.0
"""From this ratio of the largest to the smallest value, all positive, the axis is logarithmic."""


def draw_ablation(
    title: str,
    name: str,
    values: Sequence[float],
    cells: Mapping[Metric, Mapping[Objective, Sequence[CellSummary]]],
    untouched: frozenset[Objective],
) -> Figure:
    """A row of panels for each metric, a panel for each triplet weight, a line for each pair weight.

    Points are means over seeds, bars and bands one standard deviation (ddof = 1). Objectives that do not depend on the
    setting are thin lines without points.

    Args:
        title: the title of the figure.
        name: the setting.
        values: its values, two or more.
        cells: metric to ``(pair, triplet)`` to the cell at each value.
        untouched: objectives that do not depend on it.
    """
    objectives = next(iter(cells.values()))
    triplets = in_order((triplet for _, triplet in objectives), TRIPLETS)
    size = (2.6 * len(triplets) + 1.4, 2.3 * len(cells) + 0.7)
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(cells), len(triplets), squeeze=False, sharex=True, sharey="row")
    handles: dict[str, ErrorbarContainer] = {}
    for row, (metric, of_metric) in zip(grid, cells.items(), strict=True):
        for axes, triplet in zip(row, triplets, strict=True):
            for pair in in_order((pair for pair, other in of_metric if other == triplet), PAIRS):
                flat = (pair, triplet) in untouched
                line = _draw_line(axes, pair, values, of_metric[pair, triplet], flat=flat)
                if not flat or drawable(pair) not in handles:
                    handles[drawable(pair)] = line
            axes.set_title(f"{metric.label}, T {drawable(triplet)}", fontsize=9, color=INK)
            axes.tick_params(labelsize=7)
            axes.grid(color="#e6e9ed", linewidth=0.5)
    for axes in grid[-1]:
        axes.set_xlabel(drawable(name), fontsize=8.5)
        if min(values) > 0 and max(values) / min(values) >= _LOG_SPAN:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(sorted(values), [f"{value:g}" for value in sorted(values)])
    figure.suptitle(title, fontsize=10.5, color=INK)
    labels = [f"P {pair}" for pair in handles]
    drawn: Any = list(handles.values())  # matplotlib's types know no containers here
    figure.legend(drawn, labels, loc="outside right center", fontsize=8, frameon=False)
    return figure


def _draw_line(
    axes: Axes, pair: str, values: Sequence[float], cells: Sequence[CellSummary], *, flat: bool
) -> ErrorbarContainer:
    order = np.argsort(values)
    x = np.asarray(values, float)[order]
    mean = np.array([np.nan if cell.mean is None else cell.mean for cell in cells])[order]
    std = np.array([0.0 if cell.std is None else cell.std for cell in cells])[order]
    colour, dashes = PAIR_STYLES.get(pair, (PALE, ":"))
    width, mark = (0.7, "") if flat else (1.3, "o")
    bars = axes.errorbar(
        x, mean, yerr=None if flat else std, color=colour, linestyle=dashes, linewidth=width, marker=mark,
        markersize=3.5, capsize=2,
    )  # fmt: skip
    axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.05 if flat else 0.12, linewidth=0)
    return bars
