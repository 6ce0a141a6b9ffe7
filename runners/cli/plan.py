"""The command that tells what a sweep will cost: `plan`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from goal_sweep.runners.cli.options import AsJson, Set, StoreDir, Sweep, SweepArguments, Trust, console, running_of

if TYPE_CHECKING:
    from goal_sweep.runners.planning.speeds import Kind, Speeds
    from goal_sweep.sweeps import ResolvedSweep, Training, Unit

planning = typer.Typer()


@planning.command()
def plan(
    sweep: Sweep,
    set_: Set = None,
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
    from goal_sweep.goal_core.data.formats.report import published_counts
    from goal_sweep.sweeps import load_sweep
    from goal_sweep.sweeps.overview import unopened

    arguments = SweepArguments(sweep, set_, store, running=running_of(trust_plugins) if measure else "never")
    config = load_sweep(sweep, arguments.overrides)
    is_absent = config.data.root is not None and not Path(config.data.root).exists()
    if is_absent and not measure and "train" in published_counts(config.data):
        show_plan(unopened(config), devices=devices, gpu_record=gpu_record, as_json=as_json)
        return
    opened = arguments.open(renew=True)
    if measure:
        with arguments.placed():
            opened.check_trainable()
    show_plan(opened, devices=devices, measure=measure, gpu_record=gpu_record, as_json=as_json)
    for line in () if as_json else opened.dataset.notes:
        console.print(f"data: {line}")


def show_plan(
    sweep: ResolvedSweep,
    *,
    devices: int | None = None,
    measure: bool = False,
    gpu_record: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print the plan of a sweep; options as those of `plan`."""
    from goal_sweep.sweeps.overview import describe_size

    found = _plan(sweep, devices, gpu_record, measure=measure)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    size, *axes = describe_size(sweep)
    for line in (f"{found['sweep']}: {size}; data {found['data']}", *axes):
        console.print(line)
    if sweep.config.tune is not None:
        (fewest, most), rounds = found["search"]["candidates"], found["search"]["rounds"]
        number = f"{most}" if fewest == most else f"{fewest} to {most}"
        console.print(f"search {sweep.config.tune.search}: {number} candidates per objective, rounds {rounds}")
        console.print("  then the sweep's own cells, and at most as many again with the settings that it chooses")
    Console(file=console.file, width=max(130, console.width)).print(_table(found))  # rather too long than cut off
    for line in _explanations(found):
        console.print(line)


def _plan(sweep: ResolvedSweep, count: int | None, gpu_record: Path | None, *, measure: bool) -> dict[str, Any]:
    """Everything that a plan says. Hours are device hours; what is not known is None."""
    from goal_sweep.goal_core.data.formats.report import published_counts
    from goal_sweep.goal_core.models.sizes import DataSize
    from goal_sweep.runners.execution.capacity import Resources
    from goal_sweep.runners.launch.opened_sweep import OpenedSweep
    from goal_sweep.runners.launch.tuning import foresee
    from goal_sweep.runners.planning.devices import to_plan_for
    from goal_sweep.runners.planning.packing import end_s, pack_for
    from goal_sweep.runners.planning.speeds import Speeds, in_store, measured, recorded
    from goal_sweep.sweeps.overview import factors

    config, opened = sweep.config, sweep if isinstance(sweep, OpenedSweep) else None
    devices = to_plan_for(Resources.of(config.resources), count)
    parts, search = [("", tuple(sweep.reporting))], dict[str, int | tuple[int, int]]()
    if config.tune is not None:
        coming = foresee(sweep, opened.ends if opened else dict.fromkeys)
        parts = [*(("search: ", trainings) for trainings in coming.rounds), ("", coming.grid)]
        search = {"rounds": len(coming.rounds), "candidates": coming.candidates}
    splits = {} if opened else published_counts(config.data)
    size, known = DataSize.of_dataset(opened.dataset) if opened else DataSize.of(splits), {}
    left = {training for _, trainings in parts for training in trainings}
    if opened is not None:
        statuses = opened.store.status(list(left), max_attempts=config.resources.max_attempts)
        left = {training for training, status in statuses.items() if status.state != "done"}
        known = in_store(opened.store, statuses)
    speeds = Speeds(config, size, devices.gpu)
    todo = [(label, [one for one in trainings if one in left]) for label, trainings in parts]
    packings = [(label, pack_for(trainings, devices, speeds)) for label, trainings in todo if trainings]
    units = [unit for _, packing in packings for unit in packing.units]
    if gpu_record is not None:
        known |= recorded(gpu_record, units)
    if opened is not None and measure:
        at_once = to_plan_for(devices.need, None).count
        known |= measured(units, speeds, at_once, opened.dataset, opened.plan_unit)
    speeds = replace(speeds, known=known)
    ends = [end_s(packing.units, speeds.seconds, devices.count) for _, packing in packings]
    rows: dict[tuple[str, Kind], tuple[list[Training], list[Unit]]] = {}
    for label, trainings in parts:
        for one in trainings:
            rows.setdefault((label, (one.cell.model, one.stage.name)), ([], []))[0].append(one)
    for label, packing in packings:
        for unit in packing.units:
            rows[label, unit.kind][1].append(unit)
    unseen = f"not on this machine; planned from its published size, {splits.get('train')} to train on"
    return {
        **{"sweep": config.name, **factors(sweep), "data": opened.data_fingerprint if opened else unseen},
        **{"search": search, "stages": [_row(label, *row, speeds) for (label, _), row in rows.items()]},
        **{"devices": {**asdict(devices), "name": str(devices)}, "card": speeds.card.name if speeds.card else None},
        "end_s": None if None in ends else sum(filter(None, ends)),
        "packing": list(packings[-1][1].lines) if packings else [],
    }


def _row(label: str, trainings: Sequence[Training], units: Sequence[Unit], speeds: Speeds) -> dict[str, Any]:
    """What one model in a stage costs: its trainings, and the units of those that are left."""
    from goal_sweep.runners.planning.memory import disk_mb, memory_mb

    first, left = trainings[0], [one for unit in units for one in unit.trainings]
    steps = speeds.steps(first.stage)
    speed = speeds.of(units[0]) if units else None
    seconds, disk = [speeds.seconds(unit) for unit in units], [disk_mb(unit, speeds.size) for unit in units]
    memory = [memory_mb(unit, speeds.config, speeds.size) for unit in units]
    return {
        "stage": label + first.stage.name,
        "backbone": first.cell.model.backbone.name,
        "trainings": len(trainings),
        "done": len(trainings) - len(left),
        "units": len(units),
        "steps_per_epoch": steps // first.stage.epochs,
        "steps": len(left) * steps,
        "disk_mb": None if None in disk else sum(filter(None, disk)),
        "memory_mb": None if None in memory else max(filter(None, memory), default=None),
        "hours": None if None in seconds else sum(filter(None, seconds)) / 3600,
        "time_from": None if speed is None else speed.source,
    }


def _table(plan: dict[str, Any]) -> Table:
    names = ["stage", "backbone", "trainings", "done", "units", "steps/epoch", "steps", "disk MB", "memory MB"]
    table = Table(box=None)
    for name in (*names, "device hours", "time from"):
        table.add_column(name, justify="left" if name in ("stage", "backbone", "time from") else "right")
    for row in plan["stages"]:
        counts = [f"{row[key]:,}" for key in ("trainings", "done", "units", "steps_per_epoch", "steps")]
        sizes = [_rounded(row[key]) for key in ("disk_mb", "memory_mb", "hours")]
        table.add_row(row["stage"], row["backbone"].split(".")[0], *counts, *sizes, row["time_from"])
    return table


def _explanations(plan: dict[str, Any]) -> Iterator[str]:
    """What the numbers rest on, when the sweep ends, and how it is packed."""
    from goal_sweep.runners.launch.view.live import format_duration

    left = [row for row in plan["stages"] if row["units"]]
    if "by roofline" in {row["time_from"] for row in left}:
        yield f"by roofline: counted against the peaks of {plan['card']} (docs/performance.md)"
        yield "  --measure trains a few steps on this machine instead"
    if unknown := sorted({row["backbone"] for row in left if None in (row["hours"], row["memory_mb"])}):
        yield f"-- not known of {', '.join(unknown)}; --measure trains a few steps on this machine for the time"
    yield from plan["devices"]["notes"]
    if left:
        when = "when it ends is not known" if plan["end_s"] is None else f"ends after {format_duration(plan['end_s'])}"
        yield f"{when} on {plan['devices']['name']}"
    yield from plan["packing"]


def _rounded(number: float | None) -> str:
    """A number with the digits that an estimate has: two, or those before the point."""
    return "--" if number is None else f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
