"""Which objectives differ: a forest plot of their differences from one of them.

Source: the interval plots of Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice", figure 4 (rliable).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import copysign
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from goal_sweep.analysis.blocks import Difference, Objective, Verdict
from goal_sweep.analysis.figures.canvas import INK, PALE, TITLE_PLACE, letters, panels
from goal_sweep.analysis.figures.fonts import text_width, wrapped
from goal_sweep.analysis.wording import and_text, objectives_text
from goal_sweep.sweeps.results import BASELINE, Metric

_COLOURS: Final[Mapping[Verdict, str]] = {
    "better": "#0072B2",
    "worse": "#D55E00",
    "level": "#6e7781",
    "unknown": "#6e7781",
}
"""Colours of a row: blue and vermilion of Okabe and Ito's palette, which colour-blind readers can distinguish."""
_OUTLIER = 3.0
"""A row that lies this many times farther out than three quarters of the rows is cut off at the axis's end."""
_SOME: Final = {"test images": " (where ranks are stored)", "searches": " (tuned grid)"}
"""Where intervals are for these, if not in all panels."""
_COLUMNS, _WIDTH, _ROW = 4, 2.3, 0.17
_NAME, _TITLE = 7.5, 7.0
"""Sizes of texts, in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """One panel: an objective's differences in one metric of one block."""

    title: str
    metric: Metric
    best: frozenset[Objective] = frozenset()
    """The highest mean as printed, or several."""
    level: frozenset[Objective] = frozenset()
    """Those that cannot be told apart from the best."""
    differences: Mapping[Objective, Difference | None]
    """In the order of the rows; None without a value, and for con/con itself, whose row is empty."""
    beside: tuple[Difference, ...] = ()
    """The differences of the block's other direction, whose panel has the same axis."""
    beyond_seeds: tuple[str, ...] = ()
    """What intervals are for beside new seeds; those for new seeds alone lie within them."""

    @property
    def is_judged(self) -> bool:
        """Whether any difference has an interval."""
        return any(change is not None and change.p is not None for change in self.differences.values())

    @property
    def is_cut(self) -> bool:
        """Whether any row lies beyond the axis."""
        low, high = self.limits
        return any(change is not None and not low <= change.estimate <= high for change in self.differences.values())

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, which includes 0; a few objectives far out do not flatten the others."""
        ends = [change.ends for change in (*self.differences.values(), *self.beside) if change is not None]
        far = max(_OUTLIER * float(np.quantile([max(map(abs, own)) for own in ends] or [1.0], 0.75)), 0.1)
        low = max(-far, min([0.0, *(end for own in ends for end in own)]))
        high = min(far, max([0.0, *(end for own in ends for end in own)]))
        if low < 0 < high:
            low, high = min(low, -high / 6), max(high, -low / 6)  # room for a tick
        margin = 0.06 * max(high - low, 0.1)
        return low - margin, high + margin

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round values within the limits, at least one on each side of 0 on which there is more than the margin."""
        low, high = self.limits
        steps = list(map(float, MaxNLocator(4).tick_values(low, high)))
        ticks = [tick for tick in steps if low <= tick <= high]
        for end in (low, high):
            if abs(end) > 0.1 * (high - low) and not any(tick * end > 0 for tick in ticks):
                halves = ((steps[1] - steps[0]) / 2**number for number in count(1))
                ticks.append(copysign(next(half for half in halves if half < abs(end)), end))
        return tuple(sorted(ticks))


def draw_forest(forests: Sequence[Forest], what: str) -> Figure:
    """Draw the panels, four in a row; all have the same rows.

    A dot is the difference, its line the simultaneous 95 % interval, and the thick part of it that for new seeds alone.
    Blue bars lie above 0, vermilion ones below, grey ones contain it. A diamond marks the best, an open circle what
    cannot be told apart from it. A triangle at the end of an axis is a row that lies beyond it, with its value.

    Args:
        forests: at least one.
        what: what a difference is, such as ``difference from con/con``.
    """
    columns, lines = min(_COLUMNS, len(forests)), -(-len(forests) // _COLUMNS)
    rows = list(dict.fromkeys(objective for forest in forests for objective in forest.differences))
    names = ["/".join(objective) for objective in rows]
    left = 0.3 + max(text_width(name, _NAME) for name in names) / 72
    titles = [_title(forest) for forest in forests]
    marks = " Diamond: highest. Open circle: not told apart from it." if any(own.best for own in forests) else ""
    several = len(forests) > 1 and any(forest.beside for forest in forests)
    same = " The panels of a block have the same axis." if several else ""
    intervals = interval_note(forests)
    note = f"{forests[0].metric.name}: {what} in points. {intervals}{marks}{same}"
    head = 0.2 + 0.13 * max(map(len, titles))
    figure, grid = panels(
        (lines, columns), (_WIDTH, len(rows) * _ROW), note=note, left=left, top=head, between=(0.15, head + 0.3)
    )
    places = [axes for line in grid for axes in line]
    for index, (axes, forest) in enumerate(zip(places, forests, strict=False)):
        _draw_panel(axes, forest, rows)
        axes.set_yticks(range(len(names)), [""] * len(names) if index % columns else names, fontsize=_NAME)
        axes.set_title("\n".join(titles[index]), fontsize=_TITLE, color=INK, loc="left", **TITLE_PLACE)
    for axes in places[len(forests) :]:
        axes.remove()
    return figure


def interval_note(forests: Iterable[Forest]) -> str:
    """What the lines of forest plots are."""
    judged = [forest for forest in forests if forest.is_judged]
    if not judged:
        return "Single runs, and seeds that agree exactly, have no intervals."
    beyond = Counter(what for own in judged for what in own.beyond_seeds)
    if not beyond:
        return "Line: simultaneous 95 % interval for new seeds on these test images."
    thin = and_text(["seeds", *(what + _SOME[what] * (beyond[what] < len(judged)) for what in beyond)])
    return f"Simultaneous 95 % intervals. Thick: new seeds on these test images; thin: new {thin}."


def _title(forest: Forest) -> list[str]:
    best = objectives_text(sorted(forest.best)) if len(forest.best) <= 2 else f"{len(forest.best)} equal"
    name = f"{forest.metric.title}; highest: {best}" if forest.best else forest.metric.title
    width = letters(_WIDTH, _TITLE)
    return [*wrapped(forest.title, width), *wrapped(name, width)]


def _draw_panel(axes: Axes, forest: Forest, rows: Sequence[Objective]) -> None:
    limits = forest.limits
    for row, objective in enumerate(rows):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color="#f6f8fa", linewidth=0, zorder=0)
        difference = forest.differences.get(objective)
        if difference is not None:
            mark = "best" if objective in forest.best else "level" if objective in forest.level else ""
            _draw_row(axes, row, difference, limits, mark)
        elif objective == BASELINE and forest.best:
            _line(axes, [0], [row], marker="|", markersize=7, color=INK)
    axes.axvline(0, color=PALE, linewidth=0.8, zorder=1)
    axes.set(xlim=limits, ylim=(len(rows) - 0.5, -0.5), xticks=forest.ticks)
    axes.tick_params("x", labelsize=_NAME, length=2)
    axes.tick_params("y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_row(axes: Axes, row: int, difference: Difference, limits: tuple[float, float], mark: str) -> None:
    colour = _COLOURS[difference.verdict]
    low, high = limits
    if not low <= difference.estimate <= high:
        is_left = difference.estimate < low
        end, side, offset = (low, "left", 6) if is_left else (high, "right", -6)
        _line(axes, [end], [row], marker="<" if is_left else ">", markersize=5, color=colour, clip_on=False)
        style: dict[str, Any] = {"fontsize": 6.5, "color": colour, "va": "center", "ha": side}
        axes.annotate(f"{difference.estimate:+.1f}", (end, row), (offset, 0), textcoords="offset points", **style)
        return
    for both, width in ((difference.ends, 0.9), (difference.seed_ends, 2.6)):
        ends = [min(max(end, low), high) for end in both]
        _line(axes, ends, [row, row], color=colour, linewidth=width, alpha=0.55)
    face, shape = ("white" if mark == "level" else colour), ("D" if mark == "best" else "o")
    dot: dict[str, Any] = {"marker": shape, "markersize": 4.4, "markerfacecolor": face, "color": colour}
    _line(axes, [difference.estimate], [row], zorder=3, **dot)


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], **style: Any) -> None:
    """Draw a line or a marker; `Axes.plot` would fit the limits to each of a thousand, and they are given."""
    axes.add_artist(Line2D(x, y, **style))
