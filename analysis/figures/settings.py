"""Recall by the value of a setting: along an axis, of a search's candidates, and by the number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.blocks import CellSummary, Objective
from analysis.figures.canvas import FAINT, INK, PALE, outside_legend, pair_style, pairs_of, panels, style_panel
from analysis.statistics.trails import ends_of, is_log
from sweeps.axes import AxisValue, value_text
from sweeps.results import PAIRS, TRIPLETS, Metric, in_order
from sweeps.tuning import Dimension
from sweeps.tuning.trail import Trail

_LOG_SPAN: Final = 5.0
"""From this ratio of the largest to the smallest value, all positive, the axis is logarithmic."""
_LEGEND = 1.3
"""Inches of a figure's right margin with a legend."""
_OUT = 2.5
"""Scores that lie below the middle 80 % of a panel by this many times its width are drawn at the end of the axis."""


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


def draw_budget(title: str, metric: str, curves: Mapping[Objective, pd.DataFrame], search: str) -> Figure:
    """The best score by the number of candidates: a panel for each triplet weight, a line for each pair weight.

    Args:
        title: the title of the figure.
        metric: the name of the score.
        curves: of each objective, as by `analysis.statistics.trails.budget_curve`.
        search: ``random``, ``grid`` or ``tpe``.
    """
    triplets = in_order((triplet for _, triplet in curves), TRIPLETS)
    figure, (row,) = panels((1, len(triplets)), (2.6, 2.2), title=title, right=_LEGEND, sharey=True)
    handles: dict[str, Any] = {}
    for axes, triplet in zip(row, triplets, strict=True):
        for pair in pairs_of(curves, triplet):
            curve, (colour, dashes) = curves[pair, triplet], pair_style(pair)
            shape = "steps-post" if search == "tpe" else "default"
            style: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.4, "drawstyle": shape}
            (handles[f"P {pair}"],) = axes.plot(curve["candidates"], curve["best"], **style)
            axes.fill_between(curve["candidates"], curve["low"], curve["high"], color=colour, alpha=0.1, linewidth=0)
        style_panel(axes, f"T {triplet}", "candidates", f"best {metric}" if axes is row[0] else "")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    outside_legend(figure, handles)
    return figure


def draw_scores(title: str, metric: str, name: str, dimension: Dimension, trails: Sequence[Trail]) -> Figure:
    """The score of every candidate against its value of one setting: a panel for each triplet weight.

    Args:
        title: the title of the figure.
        metric: the name of the score.
        name: the setting's name.
        dimension: the setting.
        trails: of the objectives that have it.
    """
    triplets = in_order((trail.triplet for trail in trails), TRIPLETS)
    figure, (row,) = panels((1, len(triplets)), (2.6, 2.1), title=title, right=_LEGEND, between=(0.5, 0))
    pairs, low = in_order((trail.pair for trail in trails), PAIRS), False
    for axes, triplet in zip(row, triplets, strict=True):
        here = [trail for trail in trails if trail.triplet == triplet]
        scores = np.array([one.score for trail in here for one in trail.candidates if one.score is not None], float)
        tenth, most = np.quantile(scores, [0.1, 0.9])
        floor = max(float(scores.min()), float(tenth - _OUT * (most - tenth)))
        low |= bool((scores < floor).any())
        for trail in here:
            _draw_trail(axes, name, dimension, trail, floor, 0.13 * (pairs.index(trail.pair) - (len(pairs) - 1) / 2))
        style_panel(axes, f"T {triplet}", name, metric if axes is row[0] else "")
        _draw_values(axes, dimension)
    candidates = [one for trail in trails for one in trail.candidates]
    entries = {f"P {pair}": _key("o", pair_style(pair)[0]) for pair in pairs}
    entries |= {"chosen": _key("*"), "the default": _key("D")}
    entries |= {"stopped early": _key("o", face="white")} if any(one.stopped for one in candidates) else {}
    entries |= {"lower than the axis": _key("v")} if low else {}
    outside_legend(figure, entries)
    return figure


def _draw_values(axes: Axes, dimension: Dimension) -> None:
    """The axis of a setting: its range, or its list of values."""
    if dimension.domain.values:
        names = [value_text(value) for value in dimension.domain.values]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.6, len(names) - 0.4)
    elif is_log(dimension):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    for end in () if dimension.domain.values else ends_of(dimension) or ():
        axes.axvline(end, color=PALE, linewidth=0.8, linestyle=":", zorder=1)


def _key(mark: str, colour: str = FAINT, face: str = "") -> Line2D:
    return Line2D([], [], color=colour, markerfacecolor=face or colour, marker=mark, linestyle="")


def _draw_trail(axes: Axes, name: str, dimension: Dimension, trail: Trail, floor: float, offset: float) -> None:
    colour = pair_style(trail.pair)[0]
    for one in trail.candidates:
        if one.score is None:
            continue
        chosen = one.number == trail.chosen
        mark = "*" if chosen else "v" if one.score < floor else "D" if one.default else "o"
        axes.plot(
            _place(dimension, one.values[name], offset), max(one.score, floor), marker=mark, linestyle="",
            markersize=10 if chosen else 4.2, color=colour, markerfacecolor="white" if one.stopped else colour,
            markeredgecolor=INK if chosen else colour, markeredgewidth=0.6, alpha=1.0 if chosen else 0.7,
            zorder=4 if chosen else 3, clip_on=False,
        )  # fmt: skip


def _place(dimension: Dimension, value: AxisValue, offset: float) -> float:
    if dimension.domain.values:
        known = dimension.domain.values
        return offset + (known.index(value) if value in known else len(known))
    assert isinstance(value, int | float)
    return float(value)
