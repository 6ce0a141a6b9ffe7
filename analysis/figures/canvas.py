"""What the figures share: the figure itself, its colours, and how panels and legends look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.figures.fonts import drawable
from sweeps.results import PAIRS, in_order

INK, FAINT, PALE = "#1f2328", "#59636e", "#8c959f"
"""Colours of text and lines in all figures, from strong to weak."""
_PAIR_STYLES: Final[dict[str, tuple[str, str]]] = {
    "con": ("#000000", "-"),
    "lin": ("#0072B2", "--"),
    "sig": ("#D55E00", "-"),
    "lin-ms": ("#009E73", "--"),
    "sig-ms": ("#CC79A7", "-"),
}


def pair_style(pair: str) -> tuple[str, str]:
    """Colour and dashes of a pair weight's lines.

    Okabe and Ito's palette, whose colours colour-blind readers can distinguish; dashes and brightness distinguish the
    lines in greyscale print.
    """
    return _PAIR_STYLES.get(pair, (PALE, ":"))


def new_figure(width: float, height: float, *, dpi: int = 150, layout: Any = None, title: str = "") -> Figure:
    """An empty figure of so many inches, drawn without a screen."""
    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=10.5, color=INK)
    return figure


def style_panel(axes: Axes, title: str) -> None:
    """Give a panel of lines its title, small ticks and a faint grid."""
    axes.set_title(title, fontsize=9, color=INK)
    axes.tick_params(labelsize=7)
    axes.grid(color="#e6e9ed", linewidth=0.5)


def outside_legend(figure: Figure, entries: Mapping[str, Any], size: float = 8) -> None:
    """A legend to the right of all panels: what each label stands for."""
    figure.legend(list(entries.values()), list(entries), loc="outside right center", fontsize=size, frameon=False)


def triplet_panels(
    title: str, triplets: Sequence[str], height: float, *, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each triplet weight."""
    figure = new_figure(2.9 * len(triplets) + 1.5, height, layout="constrained", title=title)
    panels = list(figure.subplots(1, len(triplets), squeeze=False, sharey=sharey)[0])
    for axes, triplet in zip(panels, triplets, strict=True):
        style_panel(axes, f"T {drawable(triplet)}")
    return figure, panels


def pairs_of(objectives: Iterable[tuple[str, str]], triplet: str) -> tuple[str, ...]:
    """The pair weights that are combined with a triplet weight, in order."""
    return in_order((pair for pair, other in objectives if other == triplet), PAIRS)
