"""`goal-sweep objectives`: the grid as a table, and its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from runners.cli.options import AsJson, console, local_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
            console.print(str(path))
        return
    from goal_core.objectives import VARIANTS, list_objectives

    table = Table(box=None)
    for column in ("objective", "in the literature", *(f"loss: {variant}" for variant in VARIANTS)):
        table.add_column(column)
    rows = []
    for info in list_objectives():
        loss = {variant: bool(info.scalar_loss[variant]) for variant in VARIANTS}  # tested numerically
        rows.append({"pair": info.pair, "triplet": info.triplet, "literature": info.literature, "loss": loss})
        table.add_row(info.name, info.literature, *("yes" if loss[variant] else "no" for variant in VARIANTS))
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        console.print(table)


def draw_objectives(folder: Path) -> Iterator[Path]:
    """Draw the triplet weights, pair weights and gradient fields as PNG files into a folder, made if missing."""
    from analysis.figures.objectives import draw_gradient_fields, draw_pair_weights, draw_triplet_weights
    from goal_core.objectives import pair_weights, triplet_weights

    grid = [(pair, triplet) for pair in pair_weights for triplet in triplet_weights]
    figures = {
        "triplet-weights": draw_triplet_weights({name: _numbers("triplet", "con", name) for name in triplet_weights}),
        "pair-weights": draw_pair_weights({name: _numbers("pair", name, "con") for name in pair_weights}),
        "gradient-fields": draw_gradient_fields({names: _numbers("gradient", *names) for names in grid}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")
        yield folder / f"{name}.png"


def _numbers(what: Literal["triplet", "pair", "gradient"], pair: str, triplet: str) -> Callable[[Array, Array], Any]:
    """A part of an objective's weights as a function of numpy's arrays of similarities."""

    def at(pos: Array, neg: Array) -> Any:
        import torch

        from goal_core.objectives import GradientObjective, weights_at

        objective = GradientObjective(pair=pair, triplet=triplet)
        weights = weights_at(objective, torch.from_numpy(pos), torch.from_numpy(neg))
        if what == "triplet":
            return weights.triplet.numpy()
        both = (weights.pos, weights.neg) if what == "pair" else weights.gradient
        return tuple(one.numpy() for one in both)

    return at
