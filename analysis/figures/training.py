"""A block's training: learning curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from goal_sweep.analysis.figures.canvas import PALE, panels, style_panel

_ROLE_STYLES: Final = {"best": ("#0072B2", "-"), "baseline": ("#000000", "--"), "worst": ("#D55E00", "-")}
"""Colours and dashes of the learning curves that stand out, of Okabe and Ito's palette."""
_OTHERS = "#c4cad1"


def draw_curves(
    title: str,
    quantities: Mapping[str, Mapping[tuple[str, str], pd.DataFrame]],
    roles: Mapping[tuple[str, str], str],
    warmup: int | None = None,
) -> Figure:
    """Learning curves: a panel for each quantity, a line for each objective.

    A few objectives stand out in colour, with a band from the smallest to the largest seed; the others are grey lines.
    Lines are means over seeds.

    Args:
        quantities: a quantity's label to its curves by ``(pair, triplet)``, with ``epoch``, ``mean``, ``min`` and
            ``max``.
        roles: the objectives that stand out, to ``best``, ``baseline``, ``worst`` or several of these, with commas.
        warmup: the last epoch of the warm-up, marked by a line; no line for None or 0.
    """
    columns = max(1, round(1.5 * len(quantities) - 1))
    bottom = 0.55 + 0.2 * -(-(len(roles) + 1) // columns)
    rooms: dict[str, Any] = {"left": 0.5, "top": 0.35, "bottom": bottom, "between": (0.5, 0)}
    figure, (row,) = panels((1, len(quantities)), (2.1, 1.9), title=title, **rooms)
    for axes, (quantity, found) in zip(row, quantities.items(), strict=True):
        for objective in sorted(found, key=lambda key: key in roles):
            _draw_line(axes, objective, found[objective], roles)
        if warmup:
            axes.axvline(warmup + 0.5, color=PALE, linewidth=0.7, linestyle=":")
        style_panel(axes, quantity, "epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = row[0].get_legend_handles_labels()
    entries = dict(zip(reversed(labels), reversed(handles), strict=True))
    figure.legend(
        entries.values(),
        entries,
        loc="lower center",
        ncols=min(len(entries), columns),
        fontsize=8.5,
        frameon=False,
    )
    return figure


def _draw_line(
    axes: Axes, objective: tuple[str, str], curve: pd.DataFrame, roles: Mapping[tuple[str, str], str]
) -> None:
    if objective not in roles:
        axes.plot(curve["epoch"], curve["mean"], color=_OTHERS, linewidth=0.8, label="others")
        return
    colour, dashes = _ROLE_STYLES[roles[objective].split(", ")[0]]
    label = f"{'/'.join(objective)} ({roles[objective]})"
    axes.plot(curve["epoch"], curve["mean"], color=colour, linestyle=dashes, linewidth=1.6, label=label)
    axes.fill_between(curve["epoch"], curve["min"], curve["max"], color=colour, alpha=0.2, linewidth=0)
