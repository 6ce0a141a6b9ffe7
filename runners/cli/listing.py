"""What there is to choose from: the commands `objectives` and `schema`."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from goal_sweep.goal_core.basics.files import new_file
from goal_sweep.goal_core.objectives import VARIANTS, baselines, list_objectives, pair_weights, triplet_weights
from goal_sweep.runners.cli.options import AsJson
from goal_sweep.runners.cli.output import Force, Output, console
from goal_sweep.sweeps.reading.reference import editor_schema, settings_page

Array = NDArray[np.float64]
listing = typer.Typer()


@listing.command()
def objectives(
    plot: Annotated[Path | None, Output(help="Draw the weights and gradient fields into this folder.")] = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """List the 15 objectives, their names in the literature, and which are the gradient of a loss.

    Example: goal-sweep objectives --plot figures
    """
    if plot is not None:
        for path in draw_objectives(plot, force=force):
            console.print(str(path))
        return

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
        console.print(f"beside them, by objectives.baselines: {', '.join(baselines)}")


@listing.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table to read instead.")] = False,
) -> None:
    """Print the JSON schema of a sweep file, from which editors complete keys and values.

    Example: goal-sweep schema > sweep.schema.json
    """
    print(settings_page() if markdown else json.dumps(editor_schema(), indent=2))


def draw_objectives(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Draw the triplet weights, pair weights and gradient fields as PNG files into a folder, made if missing."""
    from goal_sweep.analysis.figures.objectives import draw_gradient_fields, draw_pair_weights, draw_triplet_weights

    grid = [(pair, triplet) for pair in pair_weights for triplet in triplet_weights]
    triplets = {name: _numbers("con", name, lambda weights: [weights.triplet]) for name in triplet_weights}
    pairs = {name: _numbers(name, "con", lambda weights: [weights.pos, weights.neg]) for name in pair_weights}
    fields = {names: _numbers(*names, lambda weights: weights.gradient) for names in grid}
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (
        ("triplet-weights", partial(draw_triplet_weights, triplets)),
        ("pair-weights", partial(draw_pair_weights, pairs)),
        ("gradient-fields", partial(draw_gradient_fields, fields)),
    ):
        path = new_file(folder / f"{name}.png", force=force)
        draw().savefig(path, dpi=150, bbox_inches="tight")
        yield path


def _numbers(pair: str, triplet: str, parts: Callable[[Any], Iterable[Any]]) -> Callable[[Array, Array], Any]:
    """Parts of an objective's weights, or the only one, as a function of numpy's arrays of similarities."""
    import torch

    from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
    from goal_sweep.goal_core.objectives.trial import weights_at

    objective = GradientObjective(pair=pair, triplet=triplet)

    def at(pos: Array, neg: Array) -> Any:
        found = [one.numpy() for one in parts(weights_at(objective, torch.from_numpy(pos), torch.from_numpy(neg)))]
        return found if len(found) > 1 else found[0]

    return at
