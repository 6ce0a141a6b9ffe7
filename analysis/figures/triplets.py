"""Triplet diagrams of a block: where training took the triplets, over the field of the triplet weight.

Source: the triplet diagrams of arXiv:2210.13188, which has them from Xuan et al., "Hard negative examples are hard,
but useful" (2020).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.figures.panels import Margins, panels
from analysis.tracking.run_schema import PAIRS, TRIPLETS, in_order
from analysis.tracking.triplet_record import TripletRecord

_INK, _FAINT, _PATH = "#1f2328", "#59636e", "#b3402a"
_LEAST = 1e-5


def draw_triplets(
    title: str,
    records: Mapping[tuple[str, str], TripletRecord],
    notes: Mapping[tuple[str, str], str],
    warmup: int = 0,
) -> Figure:
    """One panel for each objective, as the tables have them: pair weights down, triplet weights across.

    Grey is the triplet weight T, darker for more, with a line at 1/2; colour is the share of the triplets after the
    warm-up that fell into a bin, on a logarithmic scale; the red line joins the epochs' mean triplets, from the circle
    to the square, dashed in the warm-up.

    Args:
        title: over the figure.
        records: ``(pair, triplet)`` to the record, of all seeds together; at least one.
        notes: ``(pair, triplet)`` to a few words beside the panel's name.
        warmup: epochs before the objective takes over.

    Returns:
        The figure; `figure.savefig(path)` writes it.
    """
    pairs, triplets = in_order((p for p, _ in records), PAIRS), in_order((t for _, t in records), TRIPLETS)
    figure, grid = panels(
        (len(pairs), len(triplets)), (2.2, 2.2), Margins(left=0.6, right=1.0, top=0.7, bottom=0.5, between=0.3)
    )
    low = _lowest(records.values(), warmup)
    top = max(float(_share(record, warmup).max()) for record in records.values())
    for line, pair in enumerate(pairs):
        for column, triplet in enumerate(triplets):
            axes = grid[line][column]
            if (pair, triplet) not in records:
                axes.axis("off")
                continue
            image = _draw_panel(axes, records[pair, triplet], low, top, warmup)
            axes.set_title(f"{pair}/{triplet}  {notes.get((pair, triplet), '')}", fontsize=8.5, color=_INK)
            axes.set_ylabel("$s_n$" if column == 0 else "", fontsize=8.5)
            axes.set_xlabel("$s_p$" if line == len(pairs) - 1 else "", fontsize=8.5)
    figure.suptitle(title, fontsize=11, color=_INK)
    width, height = figure.get_size_inches()
    scale = figure.add_axes((1 - 0.85 / width, 0.5 - 1.1 / height, 0.15 / width, 2.2 / height))
    figure.colorbar(image, cax=scale, label="share of the triplets, per bin")
    return figure


def _lowest(records: Iterable[TripletRecord], warmup: int) -> float:
    """Where the axes begin: at the lowest similarity that is drawn, down to a tenth."""
    lowest = 0.0
    for record in records:
        seen = record.total(after=warmup)
        lowest = min(lowest, *(float(np.nanmin(means)) for means in record.path()))
        for axis in (0, 1):
            lowest = min([lowest, *record.middles[np.flatnonzero(seen.sum(axis))[:1]]])
    return max(-1.0, float(np.floor(lowest * 10) / 10))


def _share(record: TripletRecord, warmup: int) -> NDArray[np.float64]:
    total = record.total(after=warmup)
    return total / max(float(total.sum()), 1.0)


def _draw_panel(axes: Axes, record: TripletRecord, low: float, top: float, warmup: int) -> Any:
    middles, extent = record.middles, (record.low, record.high, record.low, record.high)
    place: dict[str, Any] = {"origin": "lower", "extent": extent}
    # Arrays have s_p first; pictures have their rows upwards.
    axes.imshow(record.weight.T, **place, cmap="Greys", vmin=0, vmax=2, zorder=0.5)
    if np.unique(record.weight).size > 2:  # a step has its edge already
        axes.contour(middles, middles, record.weight.T, levels=(0.5,), colors=_FAINT, linewidths=0.8, zorder=2)
    share = _share(record, warmup)
    norm = LogNorm(_LEAST, max(top, 2 * _LEAST), clip=True)
    image = axes.imshow(np.where(share > 0, share, np.nan).T, **place, cmap="viridis_r", norm=norm, zorder=1)
    axes.plot((low, 1), (low, 1), color=_FAINT, linewidth=0.6, linestyle=":", zorder=2)
    pos, neg = record.path()
    num_warm = sum(epoch <= warmup for epoch in record.epochs)
    axes.plot(pos[: num_warm + 1], neg[: num_warm + 1], color=_PATH, linewidth=1.0, linestyle=(0, (2, 1.5)), zorder=3)
    axes.plot(pos[num_warm:], neg[num_warm:], color=_PATH, linewidth=1.2, zorder=3)
    axes.plot(pos[:1], neg[:1], "o", color="white", markeredgecolor=_PATH, markersize=4.5, zorder=3)
    axes.plot(pos[-1:], neg[-1:], "s", color=_PATH, markersize=4, zorder=3)
    axes.set(xlim=(low, 1), ylim=(low, 1), aspect="equal")
    axes.tick_params(labelsize=7)
    return image
