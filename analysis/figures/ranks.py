"""The critical-difference diagram of objectives that are ranked over blocks."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.canvas import FAINT, INK, panels
from analysis.statistics.ranks import RankComparison

_BAR = "#0072b2"
_ROW = 0.26
"""Distance between two names, in inches."""


def draw_rank_diagram(comparison: RankComparison, title: str) -> Figure:
    """Mean ranks on a line, best on the left, with Nemenyi's groups as bars.

    Source: Demšar 2006, figure 1.
    """
    names, ranks = list(comparison.mean_ranks), list(comparison.mean_ranks.values())
    groups = comparison.groups
    half = (len(names) + 1) // 2
    height = 1.3 + 0.16 * len(groups) + _ROW * half
    figure, ((axes,),) = panels((1, 1), (8, height), title=title, left=0.2, top=0, bottom=0.1)
    low, high = 1.0, float(len(names))
    side = 0.34 * (high - low)
    axes.set(xlim=(low - side, high + side), ylim=(height, 0))
    axes.set_axis_off()
    _draw_scale(axes, low, high, comparison.critical_difference)
    for row, group in enumerate(groups):
        first, last = comparison.mean_ranks[group[0]], comparison.mean_ranks[group[-1]]
        y = 1.02 + 0.16 * row
        axes.plot([first - 0.05, last + 0.05], [y, y], color=_BAR, linewidth=4, solid_capstyle="round")
    top = 1.16 + 0.16 * len(groups)
    for index, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        left = index < half
        y = top + _ROW * (index if left else len(names) - 1 - index)
        end = low - 0.04 * (high - low) if left else high + 0.04 * (high - low)
        axes.plot([rank, rank, end], [0.85, y, y], color=FAINT, linewidth=0.8)
        label = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        axes.text(end, y, f" {label} ", size=9.5, color=INK, ha="right" if left else "left", va="center")
    return figure


def _draw_scale(axes: Axes, low: float, high: float, critical: float) -> None:
    axes.plot([low, high], [0.85, 0.85], color=INK, linewidth=1.2)
    for tick in range(int(low), int(high) + 1):
        axes.plot([tick, tick], [0.79, 0.85], color=INK, linewidth=1.2)
        axes.text(tick, 0.74, str(tick), size=8.5, color=INK, ha="center", va="bottom")
    shown = min(critical, high - low)
    axes.plot([low, low + shown], [0.46, 0.46], color=INK, linewidth=1.2)
    for x in (low, low + shown):
        axes.plot([x, x], [0.42, 0.50], color=INK, linewidth=1.2)
    text = f"critical difference {critical:.2f}" + (" (wider than the scale)" if critical > shown else "")
    axes.text(low + shown + 0.15, 0.46, text, size=9, color=INK, ha="left", va="center")
