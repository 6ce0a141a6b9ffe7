"""Recall by the value of a setting, along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from analysis.blocks import CellSummary, Objective
from analysis.figures.canvas import outside_legend, pair_style, pairs_of, panels, style_panel
from sweeps.results import TRIPLETS, Metric, in_order

_LOG_SPAN: Final = 5.0
"""From this ratio of the largest to the smallest value, all positive, the axis is logarithmic."""
_LEGEND = 1.3
"""Inches of a figure's right margin with a legend."""


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
    triplets = in_order((triplet for _, triplet in next(iter(cells.values()))), TRIPLETS)
    figure, grid = panels(
        (len(cells), len(triplets)), (2.2, 1.9), title=title, right=_LEGEND, sharex=True, sharey="row"
    )
    order = np.argsort(values)
    x = np.asarray(values, float)[order]
    handles: dict[str, Any] = {}
    for row, (metric, of_metric) in zip(grid, cells.items(), strict=True):
        for axes, triplet in zip(row, triplets, strict=True):
            for pair in pairs_of(of_metric, triplet):
                along = [of_metric[pair, triplet][index] for index in order]
                mean = np.array([np.nan if cell.mean is None else cell.mean for cell in along])
                std = np.array([cell.std or 0.0 for cell in along])
                flat, (colour, dashes) = (pair, triplet) in untouched, pair_style(pair)
                known = ~np.isnan(mean)  # a line joins the values on both sides of a missing one
                style: dict[str, Any] = {"color": colour, "linestyle": dashes, "markersize": 3.5, "capsize": 2}
                style |= {"linewidth": 0.7} if flat else {"linewidth": 1.3, "marker": "o", "yerr": std[known]}
                line = axes.errorbar(x[known], mean[known], **style)
                axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.05 if flat else 0.12, linewidth=0)
                if not flat or f"P {pair}" not in handles:
                    handles[f"P {pair}"] = line
            style_panel(axes, f"{metric.label}, T {triplet}", name if row is grid[-1] else "")
    for axes in grid[-1]:
        if x[0] > 0 and x[-1] / x[0] >= _LOG_SPAN:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(x, [f"{value:g}" for value in x])
    outside_legend(figure, handles)
    return figure
