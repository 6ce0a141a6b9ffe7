"""A figure of a tuned sweep: scores by setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis.figures.canvas import FAINT, INK, PALE, pair_style, panels, style_panel
from analysis.figures.lines import LEGEND
from analysis.statistics.trails import ends_of, is_log
from sweeps.axes import AxisValue, value_text
from sweeps.results import PAIRS, TRIPLETS, in_order
from sweeps.tuning import Dimension
from sweeps.tuning.trail import Trail

_OUT = 2.5
"""Scores that lie below the middle 80 % of a panel by this many times its width are drawn at the end of the axis."""


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
    figure, (row,) = panels((1, len(triplets)), (2.6, 2.1), title=title, right=LEGEND, between=(0.5, 0))
    pairs, low = in_order((trail.pair for trail in trails), PAIRS), False
    for axes, triplet in zip(row, triplets, strict=True):
        here = [trail for trail in trails if trail.triplet == triplet]
        scores = np.array([one.score for trail in here for one in trail.candidates if one.score is not None], float)
        tenth, most = np.quantile(scores, [0.1, 0.9])
        floor = max(float(scores.min()), float(tenth - _OUT * (most - tenth)))
        low |= bool((scores < floor).any())
        for trail in here:
            _draw_trail(axes, name, dimension, trail, floor, 0.13 * (pairs.index(trail.pair) - (len(pairs) - 1) / 2))
        style_panel(axes, f"T {triplet}")
        _draw_values(axes, name, dimension)
    row[0].set_ylabel(metric, fontsize=8.5)
    candidates = [one for trail in trails for one in trail.candidates]
    handles = [_key("o", f"P {pair}", pair_style(pair)[0]) for pair in pairs]
    handles += [_key("*", "chosen"), _key("D", "the default")]
    handles += [_key("o", "stopped early", face="white")] if any(one.stopped for one in candidates) else []
    handles += [_key("v", "lower than the axis")] if low else []
    figure.legend(handles=handles, loc="center right", fontsize=8, frameon=False)
    return figure


def _draw_values(axes: Axes, name: str, dimension: Dimension) -> None:
    """The axis of a setting: its range, or its list of values."""
    axes.set_xlabel(name, fontsize=8.5)
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


def _key(mark: str, label: str, colour: str = FAINT, face: str = "") -> Line2D:
    return Line2D([], [], color=colour, markerfacecolor=face or colour, marker=mark, linestyle="", label=label)


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
