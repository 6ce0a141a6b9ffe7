"""The command `compare`: the test queries that two objectives of a sweep answer differently."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.files import new_file
from goal_sweep.runners.cli.options import Device, Set, StoreDir, Sweep, SweepArguments, Trust
from goal_sweep.runners.cli.output import Force, Output, console
from goal_sweep.sweeps import load_sweep

comparing = typer.Typer()


@comparing.command()
def compare(
    sweep: Sweep,
    first: Annotated[str, typer.Argument(metavar="A", help="An objective of the sweep, such as con/nca.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    set_: Set = None,
    store: StoreDir = None,
    out: Annotated[Path | None, Output(help="The page; default: in the folder of the sweep's report.")] = None,
    stage: Annotated[str, typer.Option(help="The stage; default: the last one.")] = "",
    backbone: Annotated[str, typer.Option(help="The backbone, where the sweep has several.")] = "",
    seed: Annotated[int | None, typer.Option(help="The seed whose results are shown; default: the first one.")] = None,
    direction: Annotated[Literal["t2i", "i2t"] | None, typer.Option(help="Only this direction.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Show at most so many queries of each kind.")] = 12,
    trust_plugins: Trust = False,
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Show in pictures which test queries two objectives answer differently, how often, and with which words.

    Example: goal-sweep compare quickstart.yaml con/nca sig-ms/con
    """
    from goal_sweep.analysis.report.pair import pair_to_html
    from goal_sweep.analysis.statistics.aggregation import Inputs
    from goal_sweep.analysis.statistics.pair import pair_of
    from goal_sweep.runners.cli import pairs
    from goal_sweep.runners.cli.models import trained_results
    from goal_sweep.runners.cli.reports import ReportTarget

    arguments = SweepArguments(sweep, set_, store)
    config = load_sweep(sweep, arguments.overrides, trusted=trust_plugins)
    pair = pair_of(Inputs(results=trained_results(config, arguments)), first, second, stage=stage, backbone=backbone)
    shown = pair.seeds[0] if seed is None else seed
    if shown not in pair.seeds:
        raise GoalError(f"seed {seed} is not finished for both; give --seed, one of {', '.join(map(str, pair.seeds))}")
    if out is None:  # beside the report, and written anew like it
        page_name = "-".join((pair.block.key.slug, first, second)).replace("/", "_")
        out = ReportTarget(config=config).folder / f"{page_name}.html"
        out.parent.mkdir(parents=True, exist_ok=True)
    else:
        new_file(out, force=force)
    with arguments.placed():
        tested = pairs.tested(config, pair, shown, device)
    directions = tuple(tested.direction(way, most) for way in ("t2i", "i2t") if direction in (None, way))
    page = pair_to_html(config.name, pair, shown, directions, pictures=tested.split.region_shape is None)
    out.write_text(page, encoding="utf-8")
    pairs.print_pair(pair, directions, console)
    console.print(str(out))
