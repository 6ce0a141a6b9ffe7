"""Learning curves of a block as small multiples: a row for each quantity, a column for each triplet weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.panels import Margins, panels
from analysis.statistics.epoch_curves import Curve
from analysis.tracking.run_schema import PAIRS, TRIPLETS, in_order

STYLES: Final[dict[str, tuple[str, str]]] = {
    "con": ("#000000", "-"),
    "lin": ("#0072B2", "--"),
    "sig": ("#D55E00", "-"),
    "lin-ms": ("#009E73", "--"),
    "sig-ms": ("#CC79A7", "-"),
}
"""Colour and dashes of each pair weight: Okabe and Ito's palette, told apart by the colour-blind and, by dashes and
brightness, in print without colour."""
_OTHERS: Final = (("#56B4E9", ":"), ("#E69F00", ":"), ("#999999", ":"))
_INK, _FAINT = "#1f2328", "#8c959f"
_LEAST_WIDTH = 5.4
"""Of all panels in a row, in inches: what the title and the legend of five pair weights need."""


def draw_curves(title: str, rows: Mapping[str, Mapping[tuple[str, str], Curve]], mark: int | None = None) -> Figure:
    """One figure of a block.

    Lines are means over seeds, bands reach from the smallest to the largest seed. All panels of a row share their axis.

    Args:
        title: over the figure.
        rows: a quantity's name to its curves by ``(pair, triplet)``.
        mark: epoch until which the warm-up ran, drawn as a line; None draws none.

    Returns:
        The figure; `figure.savefig(path)` writes it.
    """
    keys = [key for found in rows.values() for key in found]
    pairs, triplets = in_order((p for p, _ in keys), PAIRS), in_order((t for _, t in keys), TRIPLETS)
    width = max(2.8, _LEAST_WIDTH / len(triplets))
    margins = Margins(left=0.65, right=0.12, top=0.65, bottom=0.8, between=0.2)
    figure, grid = panels((len(rows), len(triplets)), (width, 1.6), margins, sharey="row")
    for line, (quantity, found) in enumerate(rows.items()):
        for column, triplet in enumerate(triplets):
            axes = grid[line][column]
            _draw_panel(axes, {pair: found[pair, triplet] for pair in pairs if (pair, triplet) in found}, mark)
            axes.set_title(f"T  {triplet}" if line == 0 else "", fontsize=10, color=_INK)
            axes.set_ylabel(quantity if column == 0 else "", fontsize=8.5)
            axes.set_xlabel("epoch" if line == len(rows) - 1 else "", fontsize=8.5)
    handles = {text: handle for axes_row in grid for axes in axes_row for handle, text in _entries(axes)}
    figure.suptitle(title, fontsize=11, color=_INK)
    figure.legend(
        [handles[f"P {pair}"] for pair in pairs if f"P {pair}" in handles],
        [f"P {pair}" for pair in pairs if f"P {pair}" in handles],
        loc="lower center", ncols=max(1, len(pairs)), fontsize=8.5, frameon=False, handlelength=3,
    )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, found: Mapping[str, Curve], mark: int | None) -> None:
    for place, (pair, curve) in enumerate(found.items()):
        colour, dashes = _style(pair, place)
        dot = "o" if len(curve.epochs) == 1 else ""
        axes.plot(
            curve.epochs,
            curve.mean,
            marker=dot,
            color=colour,
            linestyle=dashes,
            linewidth=1.3,
            markersize=3,
            label=f"P {pair}",
        )
        axes.fill_between(curve.epochs, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0)
    if mark:
        axes.axvline(mark + 0.5, color=_FAINT, linewidth=0.7, linestyle=":")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.tick_params(labelsize=7)
    axes.grid(color="#e6e9ed", linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _style(pair: str, place: int) -> tuple[str, str]:
    return STYLES.get(pair) or _OTHERS[place % len(_OTHERS)]


def _entries(axes: Axes) -> Sequence[tuple[Artist, str]]:
    handles, texts = axes.get_legend_handles_labels()
    return list(zip(handles, texts, strict=True))
