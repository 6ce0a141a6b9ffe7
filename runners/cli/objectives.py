"""`goal-sweep objectives`: the grid as a table, and its figures."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from runners.cli.options import AsJson, console, local_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from goal_core.objectives import PointWeights

    Array = NDArray[np.float64]

listing = typer.Typer()


@listing.command()
def objectives(
    plot: Annotated[
        Path | None, typer.Option(parser=local_path, help="Draw the weights and gradient fields into this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the 15 objectives, their names in the literature, and which are the gradient of a loss.

    Example: goal-sweep objectives --plot figures
    """
    if plot is not None:
        for path in draw_objectives(plot):
            console.print(str(path), soft_wrap=True)
        return
    rows, table = objectives_table()
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        console.print(table)


def objectives_table() -> tuple[list[dict[str, Any]], Table]:
    """Make the list of objectives, as rows and as a table. Whether a loss exists is tested numerically per variant."""
    from goal_core.objectives import VARIANTS, list_objectives

    table = Table(box=None)
    for column in ("objective", "in the literature", *(f"loss: {variant}" for variant in VARIANTS)):
        table.add_column(column)
    rows = []
    for info in list_objectives():
        loss = {variant: bool(info.scalar_loss[variant]) for variant in VARIANTS}
        rows.append({"pair": info.pair, "triplet": info.triplet, "literature": info.literature, "loss": loss})
        table.add_row(info.name, info.literature, *("yes" if loss[variant] else "no" for variant in VARIANTS))
    return rows, table


def draw_objectives(folder: Path) -> list[Path]:
    """Draw the triplet weights, pair weights and gradient fields as PNG files.

    Args:
        folder: folder for the files; created if missing.

    Returns:
        The files.
    """
    from analysis.figures.objectives import draw_gradient_fields, draw_pair_weights, draw_triplet_weights
    from goal_core.objectives import pair_weights, triplet_weights

    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "triplet-weights": draw_triplet_weights({name: partial(_triplet, name) for name in triplet_weights}),
        "pair-weights": draw_pair_weights({name: partial(_pair, name) for name in pair_weights}),
        "gradient-fields": draw_gradient_fields(
            {(pair, triplet): partial(_field, pair, triplet) for pair in pair_weights for triplet in triplet_weights}
        ),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=150, bbox_inches="tight")
    return paths


def _at(pair: str, triplet: str, pos: Array, neg: Array) -> PointWeights:
    import torch

    from goal_core.objectives import weights_at

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
