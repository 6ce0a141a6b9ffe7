"""The command that tells what a sweep will cost: `plan`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from goal_sweep.runners.cli.options import AsJson, Set, StoreDir, Sweep, SweepArguments, Trust, console

if TYPE_CHECKING:
    from goal_sweep.sweeps import ResolvedSweep

planning = typer.Typer()


@planning.command()
def plan(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Train a few steps of each kind of unit on this machine, for its prices.")
    ] = False,
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, help="Plan for so many devices; default: those of this machine.")
    ] = None,
    trust_plugins: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show the cells, units, steps, disk space, memory and time of each stage before anything runs.

    If COCO or Flickr30K is not on this machine, its published size is used.

    Example: goal-sweep plan emoji_vsepp.yaml --measure --devices 8
    """
    from goal_sweep.goal_core.data import published_counts
    from goal_sweep.sweeps import load_sweep
    from goal_sweep.sweeps.overview import unopened

    arguments = SweepArguments(sweep, set_, store, trusted=trust_plugins)
    config = load_sweep(sweep, arguments.overrides, trusted=trust_plugins)
    is_absent = config.data.root is not None and not Path(config.data.root).exists()
    if is_absent and not measure and "train" in published_counts(config.data):
        show_plan(unopened(config), devices=devices, as_json=as_json)
        return
    opened = arguments.open(renew=True)
    if measure:
        with arguments.placed():
            opened.check_trainable()
    show_plan(opened, devices=devices, measured=measure, as_json=as_json)
    for line in () if as_json else opened.dataset.notes:
        console.print(f"data: {line}")


def show_plan(
    sweep: ResolvedSweep, *, devices: int | None = None, measured: bool = False, as_json: bool = False
) -> None:
    """Print the plan of a sweep; options as those of `plan`."""
    from goal_sweep.sweeps.overview import describe_size

    found = _plan(sweep, devices, measured=measured)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    size, *axes = describe_size(sweep)
    for line in (f"{found['sweep']}: {size}; data {found['data']}", *axes, *_search_lines(sweep, found)):
        console.print(line)
    Console(file=console.file, width=max(120, console.width)).print(_table(found))  # rather too long than cut off
    for line in _explanations(found):
        console.print(line)


def _plan(sweep: ResolvedSweep, count: int | None, *, measured: bool) -> dict[str, Any]:
    """Everything that a plan says."""
    from goal_sweep.goal_core.data import published_counts
    from goal_sweep.goal_core.models.sizes import DataSize
    from goal_sweep.runners.execution.capacity import Resources
    from goal_sweep.runners.launch.opened_sweep import OpenedSweep
    from goal_sweep.runners.launch.tuning import foresee
    from goal_sweep.runners.planning.devices import to_plan_for
    from goal_sweep.runners.planning.estimate import fit, plan_rows
    from goal_sweep.runners.planning.prices import Prices, finished
    from goal_sweep.sweeps.overview import factors

    config, opened = sweep.config, sweep if isinstance(sweep, OpenedSweep) else None
    devices = to_plan_for(Resources.of(config.resources), count)
    parts, search = [("", tuple(sweep.reporting))], dict[str, int | tuple[int, int]]()
    if config.tune is not None:
        coming = foresee(sweep, opened.ends if opened else dict.fromkeys)
        parts = [*(("search: ", trainings) for trainings in coming.rounds), ("", coming.grid)]
        search = {"rounds": len(coming.rounds), "candidates": coming.candidates}
    splits = {} if opened else published_counts(config.data)
    prices = Prices(config, DataSize.of_dataset(opened.dataset) if opened else DataSize.of(splits))
    left = list(dict.fromkeys(training for _, trainings in parts for training in trainings))
    if opened is not None:
        statuses = opened.store.status(left, max_attempts=config.resources.max_attempts)
        left = [training for training, status in statuses.items() if status.state != "done"]
        prices = replace(prices, known=finished(prices, opened.store, statuses))
    if opened is not None and measured and (todo := [one for one in parts[-1][1] if one in left]):
        from goal_sweep.runners.planning.measuring import measure

        packing, here = fit(todo, prices, devices), to_plan_for(devices.need, None)
        known = measure(packing.units, packing.prices, here.count, opened.dataset, opened.plan_unit)
        prices = replace(prices, known={**prices.known, **known})
    rows, packings = plan_rows(parts, prices, devices, set(left))
    ends = [packing.end_s for packing in packings if packing.end_s is not None]
    unseen = f"not on this machine; planned from its published size, {splits.get('train')} to train on"
    return {
        **{"sweep": config.name, **factors(sweep), "data": opened.data_fingerprint if opened else unseen},
        **{"search": search, "stages": rows, "devices": {**asdict(devices), "name": str(devices)}},
        "card": {"name": prices.card.name, "source": prices.card.source},
        "end_s": sum(ends) if len(ends) == len(packings) else None,
        "packing": list(packings[-1].lines) if packings else [],
        "text_encoder": config.model.text.encoder,
        "notes": [note for note in (devices.missing, devices.cpus) if note],
    }


def _table(plan: dict[str, Any]) -> Table:
    hours = "gpu_hours" if plan["devices"]["need"]["gpus"] else "hours"
    names = ["stage", "backbone", "trainings", "done", "units", "steps/epoch", "steps", "disk MB", "memory MB"]
    table = Table(box=None)
    for name in (*names, "GPU hours" if hours == "gpu_hours" else "device hours"):
        table.add_column(name, justify="left" if name in names[:2] else "right")
    for row in plan["stages"]:
        counts = [f"{row[key]:,}" for key in ("trainings", "done", "units", "steps_per_epoch", "steps")]
        disk, memory = _estimate(row["disk_mb"], "calibration", 0), _estimate(row["memory_mb"], row["memory_from"], 0)
        texts = [*counts, disk, memory, _estimate(row[hours], row["hours_from"], 2)]
        table.add_row(row["stage"], row["backbone"].split(".")[0], *texts)
    return table


def _search_lines(sweep: ResolvedSweep, plan: dict[str, Any]) -> Iterator[str]:
    """What a sweep's search is; nothing without `tune`."""
    if (tune := sweep.config.tune) is None:
        return
    (fewest, most), rounds = plan["search"]["candidates"], plan["search"]["rounds"]
    alone = [row["alone_hours"] for row in plan["stages"] if row["stage"].startswith("search")]
    apart = "" if None in alone else f"; unshared they would take {sum(alone):.2f} device hours"
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    yield f"search {tune.search}: {number} candidates per objective, rounds {rounds}{apart}"
    yield "  then the sweep's own cells, and at most as many again with the settings that the search chooses"


def _explanations(plan: dict[str, Any]) -> Iterator[str]:
    """What the numbers rest on, when the sweep ends, and how it is packed."""
    from goal_sweep.runners.launch.view.live import format_duration

    left, card, end = [row for row in plan["stages"] if row["units"]], plan["card"], plan["end_s"]
    if "calibration" in {basis for row in left for basis in (row["hours_from"], row["memory_from"])}:
        yield f"~ not measured here: prices of {card['name']}; time within a factor of 3, memory 30 %"
        yield "  (docs/performance.md); --measure trains a few steps on this machine instead"
        if plan["text_encoder"]:
            yield f"  the text encoder {plan['text_encoder']} is left out of them, but not by --measure"
    if unknown := sorted({row["backbone"] for row in left if None in (row["hours"], row["memory_mb"], row["disk_mb"])}):
        yield f"-- not known of {', '.join(unknown)}; --measure trains a few steps of it for time and memory"
    yield from plan["notes"]
    if left:
        when = "when it ends is not known" if end is None else f"ends after {format_duration(end)}"
        yield f"{when} on {plan['devices']['name']}"
    yield from plan["packing"]


def _estimate(number: float | None, basis: str | None, digits: int) -> str:
    """Write a number to so many digits; `~` and two significant digits say that it rests on the arithmetic."""
    if number is None:
        return "--"
    if basis != "calibration":
        return f"{number:,.{digits}f}"
    return f"~{float(f'{number:.2g}'):,.{0 if number >= 10 else digits}f}"
