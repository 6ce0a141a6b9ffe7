"""The figures of a tuned sweep: both grids and the gain, and scores by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis.blocks import Objective
from analysis.figures.canvas import FAINT, INK, PALE, new_figure, pair_style, triplet_panels
from analysis.figures.colours import scale_of, text_colour
from analysis.figures.fonts import drawable, wrapped
from analysis.figures.forest import VERDICT_COLOURS
from analysis.figures.heatmap import CELL, draw_frame, draw_grid
from analysis.statistics.gains import BlockPair, Gain
from analysis.statistics.trails import ends_of, is_log
from sweeps.axes import AxisValue, value_text
from sweeps.results import DIRECTION_TITLES, PAIRS, TRIPLETS, Metric, in_order
from sweeps.tuning import Dimension
from sweeps.tuning.trail import Trail

_LEFT, _BETWEEN, _TOP, _ROW, _BOTTOM = 0.95, 0.4, 0.62, 0.7, 0.75
_OUT = 2.5
"""Scores that lie below the middle 80 % of a panel by this many times its width are drawn at the end of the axis."""


def draw_tuned(pair: BlockPair, gains: Mapping[Metric, Mapping[Objective, Gain]], colour: str, title: str) -> Figure:
    """A row for each direction: the default grid, the tuned grid on the same colour scale, and the gain.

    Args:
        pair: both grids.
        gains: by the metrics of one measure.
        colour: the full colour of the block, RRGGBB or `CIVIDIS`.
        title: the title of the figure.
    """
    first = pair.default.grids[next(iter(gains)).key]
    wide, high = len(first.triplets) * CELL[0], len(first.pairs) * CELL[1]
    width = _LEFT + 3 * wide + 2 * _BETWEEN + 0.25
    note = wrapped(
        "Test split, mean ± standard deviation over seeds. Both grids of a row share one colour scale. Gain: tuned "
        "minus default, ± its standard deviation over seeds; bold with * where it is more than noise at 5 %, corrected "
        "for the objectives of the block. default: the choice was the default.",
        int((width - 0.4) / 0.0585),
    )
    bottom = _BOTTOM + 0.145 * (len(note) - 2)
    height = _TOP + len(gains) * (_ROW + high) + bottom
    figure = new_figure(width, height)
    figure.text(0.2 / width, 1 - 0.16 / height, title, ha="left", va="top", size=13, weight="bold", color=INK)
    for row, (metric, of_metric) in enumerate(gains.items()):
        y = height - _TOP - (row + 1) * (_ROW + high) + 0.1
        panels = [
            figure.add_axes(((_LEFT + column * (wide + _BETWEEN)) / width, y / height, wide / width, high / height))
            for column in range(3)
        ]
        name = f"{DIRECTION_TITLES[metric.direction]}   {metric.name}" if metric.direction != "both" else metric.name
        for axes, block in zip(panels, (pair.default, pair.tuned), strict=False):
            grid = block.grids[metric.key]
            draw_grid(axes, grid, scale_of(grid, colour), f"{name}, {block.key.grid}", with_rows=block is pair.default)
        draw_frame(panels[2], first.pairs, first.triplets, f"{name}, gain", with_rows=False)
        _draw_gains(panels[2], first.pairs, first.triplets, of_metric)
    figure.text(0.2 / width, 0.12 / height, "\n".join(note), ha="left", va="bottom", size=7.5, color=FAINT)
    return figure


def _draw_gains(axes: Axes, pairs: Sequence[str], triplets: Sequence[str], gains: Mapping[Objective, Gain]) -> None:
    known = [abs(gain.difference.estimate) for gain in gains.values() if gain.difference is not None]
    largest = max([0.1, *known])
    for y, pair in enumerate(pairs):
        for x, triplet in enumerate(triplets):
            gain = gains.get((pair, triplet))
            difference = None if gain is None else gain.difference
            fill = "F6F6F6" if difference is None else _diverging(difference.estimate / largest)
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=f"#{fill}", edgecolor="white", linewidth=1.6))
            if gain is None or difference is None:
                axes.text(x + 0.5, y + 0.5, "--", ha="center", va="center_baseline", size=9, color=FAINT)
                continue
            spread = "" if gain.spread is None or gain.same else f" ± {gain.spread:.1f}"
            mark = "*" if difference.told_apart else ""
            text = "default" if gain.same else f"{difference.estimate:+.1f}{spread}{mark}"
            axes.text(
                x + 0.5, y + 0.5, text, ha="center", va="center_baseline", size=9 if gain.same else 10.5,
                weight="bold" if difference.told_apart else "normal", color=f"#{text_colour(fill)}",
                style="italic" if gain.same else "normal",
            )  # fmt: skip


def _diverging(share: float) -> str:
    """White at 0, blue at 1, vermilion at -1; not so dark that text would be hard to read."""
    full = VERDICT_COLOURS["better" if share > 0 else "worse"].removeprefix("#")
    channels = (int(full[start : start + 2], 16) for start in (0, 2, 4))
    return "".join(f"{round(255 + 0.75 * abs(share) * (channel - 255)):02X}" for channel in channels)


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
    figure, panels = triplet_panels(title, triplets, 2.7, sharey=False)
    pairs, low = in_order((trail.pair for trail in trails), PAIRS), False
    for axes, triplet in zip(panels, triplets, strict=True):
        here = [trail for trail in trails if trail.triplet == triplet]
        scores = np.array([one.score for trail in here for one in trail.candidates if one.score is not None], float)
        tenth, most = np.quantile(scores, [0.1, 0.9])
        floor = max(float(scores.min()), float(tenth - _OUT * (most - tenth)))
        low |= bool((scores < floor).any())
        for trail in here:
            _draw_trail(axes, name, dimension, trail, floor, 0.13 * (pairs.index(trail.pair) - (len(pairs) - 1) / 2))
        _draw_values(axes, name, dimension)
    panels[0].set_ylabel(metric, fontsize=8.5)
    candidates = [one for trail in trails for one in trail.candidates]
    handles = [_key("o", f"P {drawable(pair)}", pair_style(pair)[0]) for pair in pairs]
    handles += [_key("*", "chosen"), _key("D", "the default")]
    handles += [_key("o", "stopped early", face="white")] if any(one.stopped for one in candidates) else []
    handles += [_key("v", "lower than the axis")] if low else []
    figure.legend(handles=handles, loc="outside right center", fontsize=8, frameon=False)
    return figure


def _draw_values(axes: Axes, name: str, dimension: Dimension) -> None:
    """The axis of a setting: its range, or its list of values."""
    axes.set_xlabel(drawable(name), fontsize=8.5)
    if dimension.domain.values:
        names = [drawable(value_text(value)) for value in dimension.domain.values]
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
