"""Figures of the objectives themselves: triplet weights, pair weights, and the gradient of every combination.

The weights are passed as functions of arrays, so this module does not depend on how an objective is computed. In all
figures, s_p is the similarity of an anchor and its positive, s_n that of the anchor and its hardest negative.

Source: arXiv:2210.13188, its figures of triplet diagrams and pair weights; the gradient fields are ours.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from goal_sweep.analysis.blocks import Array
from goal_sweep.analysis.figures.canvas import INK, PALE, colour_bar, panels, style_panel

TripletWeight = Callable[[Array, Array], Array]
"""T at (s_p, s_n); all arrays have the same shape."""
Two = Callable[[Array, Array], tuple[Array, Array]]
"""P+ and P-, or dL/ds_p and dL/ds_n, at (s_p, s_n)."""

_PULL, _PUSH = "#1a7f5a", "#b3402a"
_AT_REST, _ARROWS = 1e-2, 14
_FIELD_LOW = -0.25
"""Smallest similarity that a gradient field shows."""


def draw_triplet_weights(weights: Mapping[str, TripletWeight]) -> Figure:
    """A triplet diagram for each weight T by its name, as in the paper: s_p to the right, s_n upwards, T as colour."""
    figure, (row,) = panels((1, len(weights)), (2.2, 2.2), right=1.0, sharey=True)
    pos, neg = _plane(-1)
    for axes, (name, weight) in zip(row, weights.items(), strict=True):
        values = weight(pos, neg)
        image = axes.imshow(values, origin="lower", extent=(-1, 1, -1, 1), vmin=0, vmax=1, cmap="viridis")
        if 0 < values.min() or np.unique(values).size > 2:
            lines = axes.contour(pos, neg, values, levels=(0.1, 0.5, 0.9), colors="white", linewidths=0.8)
            axes.clabel(lines, fontsize=6)
        style_panel(axes, f"T  {name}", "$s_p$", "$s_n$" if axes is row[0] else "", grid=False)
    colour_bar(figure, image, "T")
    return figure


def draw_pair_weights(weights: Mapping[str, Two]) -> Figure:
    """P+ over s_p and P- over s_n, a panel for each weight by its name.

    Each panel has its own range, which includes 0 and 1, because `sig-ms` is not bounded by 1.
    """
    figure, (row,) = panels((1, len(weights)), (1.9, 1.9), between=(0.45, 0))
    line = np.linspace(-1, 1, 401)
    for axes, (name, weight) in zip(row, weights.items(), strict=True):
        pull, push = weight(line, line)
        axes.axhline(0, color=PALE, linewidth=0.6)
        axes.axhline(1, color=PALE, linewidth=0.6, linestyle=":")
        axes.plot(line, pull, color=_PULL, label="$P_+$ over $s_p$")
        axes.plot(line, push, color=_PUSH, linestyle="--", label="$P_-$ over $s_n$")
        style_panel(axes, f"P  {name}", "similarity", "weight" if axes is row[0] else "", grid=False)
    row[0].legend(fontsize=7, loc="lower left", frameon=False)
    return figure


def draw_gradient_fields(fields: Mapping[tuple[str, str], Two]) -> Figure:
    """Where each combination moves a triplet: arrows show the descent direction, colours its strength.

    An arrow points from (s_p, s_n) along (-dL/ds_p, -dL/ds_n). All arrows have the same length; the colour is the
    gradient's length as a share of the panel's largest. A dot marks a triplet with a gradient shorter than 0.01. Pairs
    become rows and triplets columns, in order.
    """
    pairs, triplets = (list(dict.fromkeys(key[part] for key in fields)) for part in (0, 1))
    figure, grid = panels((len(pairs), len(triplets)), (2.0, 2.0), right=1.0, sharex=True, sharey=True)
    for row, pair in zip(grid, pairs, strict=True):
        for axes, triplet in zip(row, triplets, strict=True):
            image = _draw_field(axes, fields[pair, triplet])
            x, y = "$s_p$" if row is grid[-1] else "", "$s_n$" if axes is row[0] else ""
            style_panel(axes, f"{pair}/{triplet}", x, y, grid=False)
    colour_bar(figure, image, "gradient, share of the panel's largest")
    return figure


def _draw_field(axes: Axes, gradient: Two) -> Any:
    low = _FIELD_LOW
    pos, neg = _plane(low)
    strength = np.hypot(*gradient(pos, neg))
    share = strength / max(float(strength.max()), 1e-300)
    # The square-root scale keeps the panels of the steep `sig-ms` from being white; pale colours show the arrows.
    image = axes.imshow(
        share, origin="lower", extent=(low, 1, low, 1), norm=PowerNorm(0.5, vmin=0, vmax=1), cmap="YlGnBu", alpha=0.65
    )
    margin = (1 - low) / (2 * _ARROWS)
    line = np.linspace(low + margin, 1 - margin, _ARROWS)
    pos, neg = np.meshgrid(line, line)
    d_pos, d_neg = gradient(pos, neg)
    length = np.hypot(d_pos, d_neg)
    moved = length > _AT_REST
    scale = np.where(moved, length, 1)
    axes.quiver(
        pos[moved], neg[moved], (-d_pos / scale)[moved], (-d_neg / scale)[moved],
        angles="xy", pivot="mid", scale=_ARROWS * 1.35, width=0.007, color=INK,
    )  # fmt: skip
    axes.plot(pos[~moved], neg[~moved], ".", color=PALE, markersize=1.5)
    axes.plot((low, 1), (low, 1), color=PALE, linewidth=0.6, linestyle=":")
    axes.set(xlim=(low, 1), ylim=(low, 1))
    return image


def _plane(low: float) -> tuple[Array, Array]:
    line = np.linspace(low, 1, 201)
    pos, neg = np.meshgrid(line, line)
    return pos, neg
