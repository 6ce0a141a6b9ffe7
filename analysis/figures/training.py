"""A block's training: learning curves and triplet diagrams.

Source: the triplet diagrams of arXiv:2210.13188, which takes them from Xuan et al., "Hard negative examples are hard,
but useful" (2020).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from goal_sweep.analysis.figures.canvas import FAINT, PALE, colour_bar, panels, style_panel
from goal_sweep.analysis.triplets import TripletRecord
from goal_sweep.sweeps.results import PAIRS, TRIPLETS, in_order

_ROLE_STYLES: Final = {"best": ("#0072B2", "-"), "baseline": ("#000000", "--"), "worst": ("#D55E00", "-")}
"""Colours and dashes of the learning curves that stand out, of Okabe and Ito's palette."""
_OTHERS = "#c4cad1"
_PATH = "#b3402a"
_LEAST_SHARE = 1e-5


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
        title: the title of the figure.
        quantities: a quantity's label to its curves by ``(pair, triplet)``, as from `analysis.statistics.curves`.
        roles: the objectives that stand out, to ``best``, ``baseline``, ``worst`` or several of these, with commas.
        warmup: the last epoch of the warm-up, marked by a line; no line for None or 0.
    """
    rooms: dict[str, Any] = {"left": 0.5, "top": 0.35, "bottom": 0.75, "between": (0.5, 0)}
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
        ncols=min(len(entries), len(quantities) + 1),
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


def draw_triplets(
    title: str,
    records: Mapping[tuple[str, str], TripletRecord],
    notes: Mapping[tuple[str, str], str],
    warmup: int = 0,
) -> Figure:
    """Triplet diagrams: a panel for each objective, with rows for pair weights and columns for triplet weights.

    Grey is the triplet weight T, darker for more, with a line at 1/2. Colour is the share of the triplets after the
    warm-up in each bin, on a logarithmic scale. The red line joins the epochs' mean triplets, from the circle to the
    square, dashed in the warm-up.

    Args:
        title: the title of the figure.
        records: ``(pair, triplet)`` to the pooled record of its seeds; at least one.
        notes: ``(pair, triplet)`` to a few words after the panel's name.
        warmup: the number of warm-up epochs.
    """
    pairs, triplets = in_order((p for p, _ in records), PAIRS), in_order((t for _, t in records), TRIPLETS)
    rooms: dict[str, Any] = {"right": 1.0, "between": (0.3, 0.3), "sharex": True, "sharey": True}
    figure, grid = panels((len(pairs), len(triplets)), (2.2, 2.2), title=title, **rooms)
    low = _lowest(records.values(), warmup)
    top = max(float(_share(record, warmup).max()) for record in records.values())
    for line, pair in enumerate(pairs):
        for column, triplet in enumerate(triplets):
            axes = grid[line][column]
            if (pair, triplet) not in records:
                axes.axis("off")
                continue
            image = _draw_diagram(axes, records[pair, triplet], low, top, warmup)
            x, y = "$s_p$" if line == len(pairs) - 1 else "", "$s_n$" if column == 0 else ""
            style_panel(axes, f"{pair}/{triplet}  {notes.get((pair, triplet), '')}", x, y, grid=False)
    colour_bar(figure, image, "share of the triplets, per bin")
    return figure


def _draw_diagram(axes: Axes, record: TripletRecord, low: float, top: float, warmup: int) -> Any:
    centres = record.centres
    upward: dict[str, Any] = {"origin": "lower", "extent": (record.low, record.high, record.low, record.high)}
    # The first axis of the arrays is s_p; in the image it runs to the right.
    axes.imshow(record.weight.T, **upward, cmap="Greys", vmin=0, vmax=2, zorder=0.5)
    if np.unique(record.weight).size > 2:  # a step function shows its edge already
        axes.contour(centres, centres, record.weight.T, levels=(0.5,), colors=FAINT, linewidths=0.8, zorder=2)
    share = _share(record, warmup)
    norm = LogNorm(_LEAST_SHARE, max(top, 2 * _LEAST_SHARE), clip=True)
    image = axes.imshow(np.where(share > 0, share, np.nan).T, **upward, cmap="viridis_r", norm=norm, zorder=1)
    axes.plot((low, 1), (low, 1), color=FAINT, linewidth=0.6, linestyle=":", zorder=2)
    pos, neg = record.path()
    num_warm = sum(epoch <= warmup for epoch in record.epochs)
    axes.plot(pos[: num_warm + 1], neg[: num_warm + 1], color=_PATH, linewidth=1.0, linestyle=(0, (2, 1.5)), zorder=3)
    axes.plot(pos[num_warm:], neg[num_warm:], color=_PATH, linewidth=1.2, zorder=3)
    axes.plot(pos[:1], neg[:1], "o", color="white", markeredgecolor=_PATH, markersize=4.5, zorder=3)
    axes.plot(pos[-1:], neg[-1:], "s", color=_PATH, markersize=4, zorder=3)
    axes.set(xlim=(low, 1), ylim=(low, 1), aspect="equal")
    return image


def _lowest(records: Iterable[TripletRecord], warmup: int) -> float:
    """The start of the axes: the lowest similarity in any panel, rounded down to a tenth."""
    lowest = 0.0
    for record in records:
        seen = record.total(after=warmup)
        lowest = min(lowest, *(float(np.nanmin(means)) for means in record.path()))
        for axis in (0, 1):
            lowest = min([lowest, *record.centres[np.flatnonzero(seen.sum(axis))[:1]]])
    return max(-1.0, float(np.floor(lowest * 10) / 10))


def _share(record: TripletRecord, warmup: int) -> NDArray[np.float64]:
    total = record.total(after=warmup)
    return total / max(float(total.sum()), 1.0)
