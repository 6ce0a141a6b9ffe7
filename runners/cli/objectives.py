"""`goal-sweep objectives`: the grid as a table, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from goal_core.objectives import VARIANTS, PointWeights, list_objectives, pair_weights, triplet_weights, weights_at

Array = NDArray[np.float64]


def objectives_table() -> tuple[list[dict[str, Any]], Table]:
    """The objectives as rows and as a table; whether a loss exists is found numerically, for each variant."""
    table = Table(box=None)
    for column in ("objective", "in the literature", *(f"loss ({variant})" for variant in VARIANTS)):
        table.add_column(column)
    rows = []
    for info in list_objectives():
        loss = {variant: bool(info.scalar_loss[variant]) for variant in VARIANTS}
        name = f"{info.pair}/{info.triplet}"
        rows.append({"pair": info.pair, "triplet": info.triplet, "literature": info.literature, "loss": loss})
        table.add_row(name, info.literature, *("yes" if loss[variant] else "no" for variant in VARIANTS))
    return rows, table


def plot_objectives(folder: Path, draw: Figures) -> list[Path]:
    """Draw triplet weights, pair weights and the 15 gradient fields as PNG.

    Args:
        folder: where to; made when missing.
        draw: the drawing functions of `analysis`.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "triplet-weights": draw.triplet_weights({name: partial(_triplet, name) for name in triplet_weights}),
        "pair-weights": draw.pair_weights({name: partial(_pair, name) for name in pair_weights}),
        "gradient-fields": draw.gradient_fields(
            {(pair, triplet): partial(_field, pair, triplet) for pair in pair_weights for triplet in triplet_weights}
        ),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=150, bbox_inches="tight")
    return paths


class Figures(Protocol):
    """The drawing functions, which this package does not import."""

    triplet_weights: Callable[..., Any]
    pair_weights: Callable[..., Any]
    gradient_fields: Callable[..., Any]


def _at(pair: str, triplet: str, pos: Array, neg: Array) -> PointWeights:
    return weights_at(torch.from_numpy(pos), torch.from_numpy(neg), pair=pair, triplet=triplet)


def _triplet(name: str, pos: Array, neg: Array) -> Array:
    weights: Array = _at("con", name, pos, neg).triplet.numpy()
    return weights


def _pair(name: str, pos: Array, neg: Array) -> tuple[Array, Array]:
    weights = _at(name, "con", pos, neg)
    return weights.pos.numpy(), weights.neg.numpy()


def _field(pair: str, triplet: str, pos: Array, neg: Array) -> tuple[Array, Array]:
    down, up = _at(pair, triplet, pos, neg).gradient
    return down.numpy(), up.numpy()
