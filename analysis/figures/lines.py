"""Recall as lines: against the values of a setting, and against the number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.blocks import CellSummary, Objective
from analysis.figures.canvas import outside_legend, pair_style, pairs_of, panels, style_panel
from analysis.statistics.trails import BudgetCurve
from sweeps.results import TRIPLETS, Metric, in_order

_LOG_SPAN: Final = 5.0
"""From this ratio of the largest to the smallest value, all positive, the axis is logarithmic."""
LEGEND = 1.3
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
    figure, grid = panels((len(cells), len(triplets)), (2.2, 1.9), title=title, right=LEGEND, sharex=True, sharey="row")
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
            style_panel(axes, f"{metric.label}, T {triplet}")
    for axes in grid[-1]:
        axes.set_xlabel(name, fontsize=8.5)
        if x[0] > 0 and x[-1] / x[0] >= _LOG_SPAN:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(x, [f"{value:g}" for value in x])
    outside_legend(figure, handles)
    return figure


def draw_budget(title: str, metric: str, curves: Mapping[Objective, BudgetCurve]) -> Figure:
    """The best score by the number of candidates: a panel for each triplet weight, a line for each pair weight.

    Args:
        title: the title of the figure.
        metric: the name of the score.
        curves: of each objective.
    """
    triplets = in_order((triplet for _, triplet in curves), TRIPLETS)
    figure, (row,) = panels((1, len(triplets)), (2.6, 2.2), title=title, right=LEGEND, sharey=True)
    handles: dict[str, Any] = {}
    for axes, triplet in zip(row, triplets, strict=True):
        for pair in pairs_of(curves, triplet):
            curve, (colour, dashes) = curves[pair, triplet], pair_style(pair)
            budgets, shape = np.arange(1, len(curve.mean) + 1), "steps-post" if curve.is_trail else "default"
            style: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.4, "drawstyle": shape}
            (handles[f"P {pair}"],) = axes.plot(budgets, curve.mean, **style)
            axes.fill_between(budgets, curve.low, curve.high, color=colour, alpha=0.1, linewidth=0)
        style_panel(axes, f"T {triplet}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("candidates", fontsize=8.5)
    row[0].set_ylabel(f"best {metric}", fontsize=8.5)
    outside_legend(figure, handles)
    return figure
