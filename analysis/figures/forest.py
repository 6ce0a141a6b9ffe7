"""Differences from one objective with their intervals, a row for each objective: a forest plot.

Source: the interval plots of Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice", figure 4 (rliable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis.blocks import Difference, Objective, Verdict
from analysis.figures.canvas import FAINT, INK, PALE, new_figure
from analysis.figures.fonts import drawable, text_width, wrapped
from analysis.wording import objectives_text
from sweeps.results import BASELINE, Metric

VERDICT_COLOURS: Final[Mapping[Verdict, str]] = {
    "better": "#0072B2",
    "worse": "#D55E00",
    "level": "#6e7781",
    "unknown": "#6e7781",
}
"""Colours of a row: blue and vermilion of Okabe and Ito's palette, which colour-blind readers can distinguish."""
_OUTLIER = 3.0
"""A row that lies this many times farther out than three quarters of the rows is cut off at the axis's end."""
_COLUMNS, _WIDTH, _BETWEEN, _ROW = 4, 2.3, 0.15, 0.17
_NAME, _TITLE, _NOTE = 7.5, 7.0, 7.5
"""Sizes of texts, in points; a letter is about 0.56 of its size wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """One panel: an objective's differences in one metric of one block."""

    title: str
    metric: Metric
    best: frozenset[Objective]
    """The highest mean as printed, or several."""
    level: frozenset[Objective]
    """Those that cannot be told apart from the best."""
    differences: Mapping[Objective, Difference | None]
    """Objective minus con/con, in the order of the rows; None without a value, and for con/con, whose row is empty."""
    beside: tuple[Difference, ...] = ()
    """The differences of the block's other direction, whose panel has the same axis."""

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, which includes 0; a few objectives far out do not flatten the others."""
        known = [difference for difference in (*self.differences.values(), *self.beside) if difference is not None]
        ends = [difference.ends for difference in known]
        far = max(_OUTLIER * float(np.quantile([max(map(abs, own)) for own in ends] or [1.0], 0.75)), 0.1)
        low = min([0.0, *(end for own in ends for end in own if end >= -far)])
        high = max([0.0, *(end for own in ends for end in own if end <= far)])
        low = -far if any(min(own) < -far for own in ends) else low
        high = far if any(max(own) > far for own in ends) else high
        margin = 0.06 * max(high - low, 0.1)
        return low - margin, high + margin


def draw_forest(panels: Sequence[Forest]) -> Figure:
    """Draw the panels, four in a row; those of one row share the names of their objectives.

    A dot is the difference, its bar the simultaneous 95 % interval. Blue bars lie above 0, vermilion ones below, grey
    ones contain it. A diamond marks the best, an open circle what cannot be told apart from it. A triangle at the end
    of an axis is a row that lies beyond it, with its value.

    Args:
        panels: at least one.
    """
    columns, lines = min(_COLUMNS, len(panels)), -(-len(panels) // _COLUMNS)
    num_rows = max(len(panel.differences) for panel in panels)
    names = {"/".join(objective) for panel in panels for objective in panel.differences}
    left = 0.2 + max(text_width(name, _NAME) for name in names) / 72
    width = left + columns * (_WIDTH + _BETWEEN) + 0.1
    note = wrapped(
        f"{panels[0].metric.name}: difference from {'/'.join(BASELINE)} in points, simultaneous 95 % intervals. "
        "Diamond: best. Open circle: not told apart from the best."
        + (" The panels of a block have the same axis." if len(panels) > 1 else ""),
        _letters(width - 0.2, _NOTE),
    )
    top = 0.2 + 0.13 * max(len(_title(panel)) for panel in panels)
    between, bottom = 0.32, 0.42 + 0.15 * len(note)
    high = num_rows * _ROW
    height = top + lines * high + (lines - 1) * (top + between) + bottom
    figure = new_figure(width, height)
    for index, panel in enumerate(panels):
        line, column = divmod(index, _COLUMNS)
        y = height - top - high - line * (high + top + between)
        x = left + column * (_WIDTH + _BETWEEN)
        axes = figure.add_axes((x / width, y / height, _WIDTH / width, high / height))
        named = column == 0 or list(panel.differences) != list(panels[index - 1].differences)
        _draw_panel(axes, panel, with_names=named)
    figure.text(0.1 / width, 0.1 / height, "\n".join(note), size=_NOTE, color=FAINT, ha="left", va="bottom")
    return figure


def _title(panel: Forest) -> list[str]:
    best = objectives_text(sorted(panel.best)) if len(panel.best) <= 2 else f"{len(panel.best)} equal"
    width = _letters(_WIDTH, _TITLE)
    return [*wrapped(panel.title, width), *wrapped(f"{panel.metric.title}; best: {best}", width)]


def _letters(inches: float, size: float) -> int:
    """How many letters of a size fit."""
    return int(inches * 72 / (0.56 * size))


def _draw_panel(axes: Axes, panel: Forest, *, with_names: bool) -> None:
    low, high = panel.limits
    for row, (objective, difference) in enumerate(panel.differences.items()):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f6f8fa", linewidth=0, zorder=0)
        if difference is not None:
            mark = "best" if objective in panel.best else "level" if objective in panel.level else ""
            _draw_row(axes, row, difference, (low, high), mark)
        elif objective == BASELINE:
            _line(axes, [0], [row], marker="|", markersize=7, color=INK)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=1)
    axes.set(xlim=(low, high), ylim=(len(panel.differences) - 0.5, -0.5))
    names = [drawable("/".join(objective)) for objective in panel.differences]
    axes.set_yticks(range(len(names)), names if with_names else [""] * len(names), fontsize=_NAME)
    axes.set_title("\n".join(_title(panel)), fontsize=_TITLE, color=INK, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.tick_params(labelsize=7.5, length=2)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_row(axes: Axes, row: int, difference: Difference, limits: tuple[float, float], mark: str) -> None:
    colour = VERDICT_COLOURS[difference.verdict]
    low, high = limits
    if not low <= difference.estimate <= high:
        outside_left = difference.estimate < low
        end = low if outside_left else high
        _line(axes, [end], [row], marker="<" if outside_left else ">", markersize=5, color=colour, clip_on=False)
        axes.annotate(
            f"{difference.estimate:+.1f}", (end, row), (6 if outside_left else -6, 0), textcoords="offset points",
            fontsize=6.5, color=colour, va="center", ha="left" if outside_left else "right",
        )  # fmt: skip
        return
    ends = difference.ends
    _line(axes, [max(low, ends[0]), min(high, ends[-1])], [row, row], color=colour, linewidth=2.2, alpha=0.55)
    face, shape = ("white" if mark == "level" else colour), ("D" if mark == "best" else "o")
    _line(
        axes, [difference.estimate], [row], linestyle="none", marker=shape, markersize=4.4, color=colour,
        markerfacecolor=face, zorder=3,
    )  # fmt: skip


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], **style: Any) -> None:
    """Draw a line or a marker; `Axes.plot` would fit the limits to each of a thousand, and they are given."""
    axes.add_artist(Line2D(x, y, **style))
