"""The command that tells what a sweep will cost: `plan`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from shutil import disk_usage
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from goal_sweep.goal_core.data.formats.report import published_counts
from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.cli.options import AsJson, Seeds, Set, StoreDir, Sweep, SweepArguments, Trust
from goal_sweep.runners.cli.output import console
from goal_sweep.runners.execution.session import Resources
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.tuning import ends_of, foresee
from goal_sweep.runners.planning.devices import to_plan_for
from goal_sweep.runners.planning.estimates import CARDS, disk_mb, memory_mb
from goal_sweep.runners.planning.packing import Speeds, end_s, in_store, measured, pack_for, recorded
from goal_sweep.runners.store import bucket_of, local_root
from goal_sweep.sweeps import ResolvedSweep, Training, Unit, load_sweep
from goal_sweep.sweeps.cells import describe_size, factors, unopened

planning = typer.Typer()


@planning.command()
def plan(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Train a few steps of each kind of unit on this machine, for the time.")
    ] = False,
    gpu_record: Annotated[
        Path | None, typer.Option("--gpu-record", help="gpu.json of `make gpu`, for the time of the models in it.")
    ] = None,
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
    resolved = planned(SweepArguments(sweep, set_, store, trusted=trust_plugins, seeds=seeds), measure=measure)
    found = plan_of(resolved, devices, gpu_record, measure=measure)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        console.print(plan_text(resolved, found, console.width))


def planned(arguments: SweepArguments, *, measure: bool = False) -> ResolvedSweep:
    """The sweep to plan, checked as `launch` checks it; without its data where only their published size is known."""
    config = load_sweep(arguments.sweep, arguments.overrides, trusted=arguments.trusted)
    is_absent = config.data.root is not None and not Path(config.data.root).exists()
    if is_absent and not measure and "train" in published_counts(config.data):
        return unopened(config)
    opened = arguments.open(renew=True)
    with arguments.placed():
        opened.check_trainable()
    return opened


def plan_of(
    sweep: ResolvedSweep, count: int | None = None, gpu_record: Path | None = None, *, measure: bool = False
) -> dict[str, Any]:
    """Everything that `plan --json` says; arguments as its options. Hours are device hours; what is not known is None.

    The data of a sweep that is not opened are those that were published under their name.
    """
    config, opened = sweep.config, sweep if isinstance(sweep, OpenedSweep) else None
    devices = to_plan_for(Resources.of(config.resources), count)
    parts, search = [("", list(sweep.reporting))], {}
    if config.tune is not None:
        read = partial(ends_of, opened.store, max_attempts=config.resources.max_attempts) if opened else dict.fromkeys
        coming = foresee(sweep, read)
        parts = [*(("search: ", list(one)) for one in coming.rounds), ("", list(coming.grid))]
        search = {"rounds": len(coming.rounds), "candidates": coming.candidates}
    splits, known, done = published_counts(config.data), {}, set()
    if opened is not None:
        every = [training for _, part in parts for training in part]
        statuses = opened.store.status(every, max_attempts=config.resources.max_attempts)
        known, done = in_store(opened.store, statuses), {one for one in every if statuses[one].state == "done"}
    speeds = Speeds(config, DataSize.of_dataset(opened.dataset) if opened else DataSize.of(splits), devices.gpu)
    rows: dict[tuple[str, Any], tuple[list[Training], list[Unit]]] = {}
    packings = []
    for label, part in parts:
        for one in part:
            rows.setdefault((label, (one.cell.model, one.stage.name)), ([], []))[0].append(one)
        if left := [one for one in part if one not in done]:
            packings.append(pack_for(left, devices, speeds))
            for unit in packings[-1].units:
                rows[label, unit.kind][1].append(unit)
    units = [unit for packing in packings for unit in packing.units]
    if gpu_record is not None:
        known |= recorded(gpu_record, units)
    if opened is not None and measure:
        known |= measured(units, speeds, opened.store)
    speeds = replace(speeds, known=known)
    stages = [_row(label, *row, speeds) for (label, _), row in rows.items()]
    ends = [end_s(packing.units, speeds.seconds, devices.count) for packing in packings]
    unseen = f"not on this machine; planned from its published size, {splits.get('train')} to train on"
    return {
        **{"sweep": config.name, **factors(sweep), "data": opened.data_fingerprint if opened else unseen},
        **{"search": search, "stages": stages},
        **{"devices": {**asdict(devices), "name": str(devices)}, "card": speeds.card.name if speeds.card else None},
        **{"end_s": _sum(ends), "packing": list(packings[-1].lines) if packings else []},
        "notes": [
            *filter(None, dict.fromkeys(map(speeds.waits, units))),
            *devices.notes,
            *_too_small(config.store, sum(row["disk_mb"] or 0 for row in stages)),
            *([f"warning: {unlike}"] if opened and (unlike := opened.unlike_published()) else ()),
            *(f"data: {line}" for line in (opened.notes if opened else ())),
        ],
    }


def _row(label: str, trainings: Sequence[Training], units: Sequence[Unit], speeds: Speeds) -> dict[str, Any]:
    """What one model in a stage costs: its trainings, and the units of those that are left."""
    first, left = trainings[0], sum(len(unit.trainings) for unit in units)
    steps, speed = speeds.steps(first.stage), speeds.of(units[0]) if units else None
    memory = [memory_mb(unit, speeds.config, speeds.size) for unit in units]
    seconds = _sum([speeds.seconds(unit) for unit in units])
    return {
        "stage": label + first.stage.name,
        "backbone": first.cell.model.backbone.name,
        "trainings": len(trainings),
        "done": len(trainings) - left,
        "units": len(units),
        "steps_per_epoch": steps // first.stage.epochs,
        "steps": left * steps,
        "disk_mb": _sum([disk_mb(unit, speeds.size) for unit in units]),
        "memory_mb": None if None in memory else max(filter(None, memory), default=None),
        "hours": None if seconds is None else seconds / 3600,
        "time_from": None if speed is None else speed.source,
    }


def _too_small(store: str, needed_mb: float) -> Iterator[str]:
    """A warning where the disk of a store in a folder has not so much room."""
    root = local_root(store)
    free_mb = disk_usage(next(place for place in (root, *root.parents) if place.is_dir())).free / 1e6
    if bucket_of(store) is None and needed_mb > free_mb:
        yield f"warning: the disk of {root} has {free_mb / 1e3:.1f} GB free, the weights take {needed_mb / 1e3:.1f} GB"


def _sum(numbers: Sequence[float | None]) -> float | None:
    return None if None in numbers else sum(filter(None, numbers))


def plan_text(sweep: ResolvedSweep, plan: dict[str, Any], width: int = 80) -> str:
    """A plan as text, with a table of so many columns."""
    lines = [f"{plan['sweep']}: {describe_size(sweep)}; data {plan['data']}"]
    if sweep.config.tune is not None:
        number, rounds = " to ".join(map(str, sorted(set(plan["search"]["candidates"])))), plan["search"]["rounds"]
        lines.append(f"search {sweep.config.tune.search}: {number} candidates per objective, rounds {rounds}")
        lines.append("  then the sweep's own cells, and at most as many again with the settings that it chooses")
    table = Table(box=None)
    for heading in ("stage", "backbone", "done", "units", "steps", "disk\nMB", "memory\nMB", "device\ntime"):
        align: Any = "left" if heading in ("stage", "backbone") else "right"
        table.add_column(heading, justify=align, overflow="fold", no_wrap=heading != "backbone")
    for row in plan["stages"]:
        numbers = map(_shown, (row["units"], row["steps"], row["disk_mb"], row["memory_mb"]))
        done, backbone = f"{row['done']}/{row['trainings']}", row["backbone"].split(".")[0]
        table.add_row(row["stage"], backbone, done, *numbers, _time(row["hours"]))
    drawing = Console(file=StringIO(), record=True, width=width, force_jupyter=False)
    drawing.print(table)
    lines += [line.rstrip() for line in drawing.export_text().splitlines()]
    left = [row for row in plan["stages"] if row["units"]]
    for source in dict.fromkeys(filter(None, (row["time_from"] for row in left))):
        of = ", ".join(dict.fromkeys(row["stage"] for row in left if row["time_from"] == source))
        counted = f" for {plan['card']} (docs/performance.md); --measure trains steps here"
        lines.append(f"time of {of}: {source}{counted if source == 'counted' else ''}")
    if unknown := sorted({row["backbone"] for row in left if None in (row["disk_mb"], row["memory_mb"])}):
        lines.append(f"-- disk and memory are not known of {', '.join(unknown)}")
    if left:
        if (end_s := plan["end_s"]) is None:
            cards = "" if plan["card"] else f" or a card of {', '.join(card.name for card in CARDS)}"
            lines.append(f"The time is not known; try --measure{cards}")
        else:
            takes = f"about {timedelta(seconds=round(end_s))} on {plan['devices']['name']}"
            lines.append(f"It will take {takes}, not counting start-up and features.")
    return "\n".join((*lines, *plan["packing"], *plan["notes"]))


def _time(hours: float | None) -> str:
    """Hours in the unit in which they are no small number."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if hours is not None and hours * 3600 < 100 * seconds:
            return f"{_shown(hours * 3600 / seconds)} {unit}"
    return "--" if hours is None else f"{_shown(hours)} h"


def _shown(value: float | None) -> str:
    """A number: an estimate with two digits, or those before the point."""
    return "--" if value is None else f"{value:,.0f}" if isinstance(value, int) or value >= 10 else f"{value:.2g}"
