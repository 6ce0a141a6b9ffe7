"""Recall as lines: against the values of a setting, from stage to stage, and against the number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.blocks import CellSummary, Objective
from analysis.figures.canvas import new_figure, outside_legend, pair_style, pairs_of, style_panel, triplet_panels
from analysis.figures.fonts import drawable
from analysis.statistics.trails import BudgetCurve
from sweeps.results import TRIPLETS, Metric, in_order

_LOG_SPAN: Final = 5.0
"""From this ratio of the largest to the smallest value, all positive, the axis is logarithmic."""
_MARKS: Final = {"con": "o", "nca": "s", "cir": "^"}


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
    figure = new_figure(2.6 * len(triplets) + 1.4, 2.3 * len(cells) + 0.7, layout="constrained", title=title)
    grid = figure.subplots(len(cells), len(triplets), squeeze=False, sharex=True, sharey="row")
    handles: dict[str, Any] = {}
    for row, (metric, of_metric) in zip(grid, cells.items(), strict=True):
        for axes, triplet in zip(row, triplets, strict=True):
            for pair in pairs_of(of_metric, triplet):
                flat = (pair, triplet) in untouched
                line = _draw_line(axes, pair, values, of_metric[pair, triplet], flat=flat)
                if not flat or f"P {drawable(pair)}" not in handles:
                    handles[f"P {drawable(pair)}"] = line
            style_panel(axes, f"{metric.label}, T {drawable(triplet)}")
    for axes in grid[-1]:
        axes.set_xlabel(drawable(name), fontsize=8.5)
        if min(values) > 0 and max(values) / min(values) >= _LOG_SPAN:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(sorted(values), [f"{value:g}" for value in sorted(values)])
    outside_legend(figure, handles)
    return figure


def _draw_line(
    axes: Axes, pair: str, values: Sequence[float], cells: Sequence[CellSummary], *, flat: bool
) -> ErrorbarContainer:
    order = np.argsort(values)
    x = np.asarray(values, float)[order]
    mean = np.array([np.nan if cell.mean is None else cell.mean for cell in cells])[order]
    std = np.array([0.0 if cell.std is None else cell.std for cell in cells])[order]
    colour, dashes = pair_style(pair)
    width, mark = (0.7, "") if flat else (1.3, "o")
    bars = axes.errorbar(
        x, mean, yerr=None if flat else std, color=colour, linestyle=dashes, linewidth=width, marker=mark,
        markersize=3.5, capsize=2,
    )  # fmt: skip
    axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.05 if flat else 0.12, linewidth=0)
    return bars


def draw_side_by_side(
    title: str, labels: Sequence[str], means: Mapping[Metric, Mapping[Objective, Sequence[float | None]]]
) -> Figure:
    """A panel for each metric: a line for each objective from column to column, coloured by its pair weight.

    Args:
        title: the title of the figure.
        labels: the names of the columns, two or more.
        means: metric to ``(pair, triplet)`` to the mean in each column; None where there is none.
    """
    figure = new_figure(3.1 * len(means) + 1.2, 3.6, layout="constrained", title=title)
    panels = figure.subplots(1, len(means), squeeze=False)[0]
    for axes, (metric, by_objective) in zip(panels, means.items(), strict=True):
        for (pair, triplet), values in by_objective.items():
            known = [(column, value) for column, value in enumerate(values) if value is not None]
            colour, dashes = pair_style(pair)
            axes.plot(
                [column for column, _ in known], [value for _, value in known], marker=_MARKS.get(triplet, "x"),
                markersize=4, color=colour, linestyle=dashes, linewidth=1, label=f"{pair}/{triplet}",
            )  # fmt: skip
        style_panel(axes, metric.label)
        axes.set_xticks(range(len(labels)), [drawable(label) for label in labels], fontsize=7, rotation=20, ha="right")
        axes.set_xlim(-0.3, len(labels) - 0.7)
    handles, names = panels[0].get_legend_handles_labels()
    outside_legend(figure, dict(zip(names, handles, strict=True)), size=7)
    return figure


def draw_budget(title: str, metric: str, curves: Mapping[Objective, BudgetCurve]) -> Figure:
    """The best score by the number of candidates: a panel for each triplet weight, a line for each pair weight.

    Args:
        title: the title of the figure.
        metric: the name of the score.
        curves: of each objective.
    """
    triplets = in_order((triplet for _, triplet in curves), TRIPLETS)
    figure, panels = triplet_panels(title, triplets, 2.9)
    handles: dict[str, Any] = {}
    for axes, triplet in zip(panels, triplets, strict=True):
        for pair in pairs_of(curves, triplet):
            curve = curves[pair, triplet]
            colour, dashes = pair_style(pair)
            budgets = np.arange(1, len(curve.mean) + 1)
            (handles[f"P {drawable(pair)}"],) = axes.plot(
                budgets, curve.mean, color=colour, linestyle=dashes, linewidth=1.4,
                drawstyle="steps-post" if curve.is_trail else "default",
            )  # fmt: skip
            axes.fill_between(budgets, curve.low, curve.high, color=colour, alpha=0.1, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("candidates", fontsize=8.5)
    panels[0].set_ylabel(f"best {metric}", fontsize=8.5)
    outside_legend(figure, handles)
    return figure
