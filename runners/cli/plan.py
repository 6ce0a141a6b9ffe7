"""The command that tells what a sweep will cost: `plan`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from runners.cli.options import AsJson, Set, StoreDir, Sweep, SweepArguments, console

if TYPE_CHECKING:
    from runners.launch.devices import Devices
    from runners.launch.estimate import BackbonePlan, StagePlan
    from runners.launch.opened_sweep import OpenedSweep
    from runners.launch.packing import Choice
    from runners.launch.prices import Basis, Prices
    from runners.launch.simulation import Schedule
    from runners.launch.tuning.cost import SearchCost
    from sweeps import SweepConfig, Training

planning = typer.Typer()
_GROWTH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of devices that `--growth` simulates."""
_WIDTH = 110
"""Least columns of a table: a number that is cut off is worse than a line that is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Everything that `plan` prints."""

    stages: list[StagePlan]
    choice: Choice | None
    """None where nothing is left to train."""
    schedules: list[tuple[Schedule, dict[str, int]]]
    """Of each simulated number of devices, with the number of units of each stage."""
    data: str
    search: SearchCost | None = None
    """Of a sweep that tunes: what its search costs, which the rest leaves out."""


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
    growth: Annotated[bool, typer.Option("--growth", help="Also simulate 1 to 512 devices.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the cells, units, steps, disk space, memory and time of each stage before anything runs.

    A simulation of the launch tells when it ends and how much of the devices' time is lost. If COCO or Flickr30K is not
    on this machine, its published size is used.

    Example: goal-sweep plan emoji_vsepp.yaml --measure --devices 8
    """
    from runners.launch.estimate import absent_but_published, plan_published, published_prices, unopened
    from runners.launch.tuning.cost import search_cost
    from sweeps import load_sweep

    arguments = SweepArguments(sweep, set_, store)
    config = load_sweep(sweep, arguments.overrides)
    splits = absent_but_published(config)
    if splits is None or measure:
        opened = arguments.open()
        if measure:
            opened.check_trainable()
        show_plan(opened, as_json=as_json, measured=measure, devices=devices, growth=growth)
        return
    prices, bare = published_prices(config, splits), unopened(config)
    choice, schedules = _simulated(bare.trainings, prices, _devices(config, devices), growth)
    stages = plan_published(config, splits, choice.packing.limits if choice else {})
    data = f"not on this machine; planned from its published size, {splits['train']} to train on"
    search = search_cost(bare, dict.fromkeys, prices, _devices(config, devices)) if config.tune else None
    found = _Plan(stages=stages, choice=choice, schedules=schedules, data=data, search=search)
    _show(config, found, as_json=as_json, in_full=devices is not None or growth)


def show_plan(
    sweep: OpenedSweep,
    *,
    as_json: bool = False,
    measured: bool = False,
    devices: int | None = None,
    growth: bool = False,
) -> None:
    """Print the plan of a sweep.

    Args:
        sweep: the sweep.
        as_json: print it as JSON.
        measured: measure the prices on this machine.
        devices: plan for so many devices; None for those of this machine.
        growth: also simulate 1 to 512 devices.
    """
    from runners.launch.estimate import plan_stages, sweep_prices
    from runners.launch.tuning.cost import search_cost

    whole, sweep = sweep, replace(sweep, candidates=())
    statuses = whole.statuses()
    left = [training for training in sweep.trainings if statuses[training].state != "done"]
    found = None
    if measured and left:
        from runners.launch.measuring import measure

        found = measure(sweep, left, _devices(sweep.config, None))
    prices = sweep_prices(whole, statuses, found)
    choice, schedules = _simulated(left, prices, _devices(sweep.config, devices), growth)
    stages = plan_stages(sweep, prices, choice.packing.limits if choice else {}, statuses)
    read, here = partial(whole.ends, retried=False), _devices(sweep.config, devices)
    search = search_cost(sweep, read, prices, here) if sweep.config.tune else None
    plan = _Plan(stages=stages, choice=choice, schedules=schedules, data=sweep.data_fingerprint, search=search)
    _show(sweep.config, plan, as_json=as_json, in_full=devices is not None or growth)


def _devices(config: SweepConfig, count: int | None) -> Devices:
    from runners.execution.capacity import Resources
    from runners.launch.devices import to_plan_for

    resources = config.resources
    need = Resources(cpus=resources.cpus, gpus=resources.gpus, accelerator=resources.accelerator)
    return to_plan_for(need, count)


def _simulated(
    left: Sequence[Training], prices: Prices, devices: Devices, growth: bool
) -> tuple[Choice | None, list[tuple[Schedule, dict[str, int]]]]:
    from runners.launch.packing import choose, units_by_stage

    if not left:
        return None, []
    counts = sorted({devices.count, *(_GROWTH if growth else ())})
    choices = {count: choose(left, prices.config, prices, replace(devices, count=count)) for count in counts}
    schedules = []
    for choice in choices.values():
        sizes = units_by_stage([unit for unit, _ in choice.packing.units])
        schedules.append((choice.packing.schedule, {stage: len(found) for stage, found in sizes.items()}))
    return choices[devices.count], schedules


def _show(config: SweepConfig, plan: _Plan, *, as_json: bool, in_full: bool) -> None:
    if plan.choice is not None:  # what follows a unit is packed among its own cells
        sizes = Counter[str](unit.stage.name for unit, _ in plan.choice.packing.units)
        plan = replace(plan, stages=[replace(stage, units=sizes[stage.name]) for stage in plan.stages])
    if as_json:
        stages = [asdict(stage) for stage in plan.stages]
        full = in_full or plan.search is not None
        print(json.dumps(_in_full(config, plan, stages) if full else stages, indent=2))
        return
    console.print(
        f"{config.name}: {plan.stages[0].cells} cells = {_count(len(config.model.backbones), 'backbone')} x "
        f"{_count(len(config.seeds), 'seed')} x {_count(len(config.objectives.names), 'objective')}"
        f"{' x points of the axes' * bool(config.axes)}; data {plan.data}",
        soft_wrap=True,
    )
    for line in (*axes_lines(config), *search_lines(config, plan.search)):
        console.print(line, soft_wrap=True)
    table = Table(box=None)
    time = "GPU hours" if config.resources.gpus else "device hours"
    for column in ("stage", "cells", "done", "units", "steps/epoch", "steps", "disk MB", "memory MB", time):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in plan.stages:
        disk = _estimate(stage.disk_mb, stage.disk_from, 0)
        memory = _estimate(stage.memory_mb, stage.memory_from, 0)
        if stage.memory_mb is not None and _unknown(stage, "memory_mb"):
            memory = f">= {memory}"
        hours = _estimate(stage.gpu_hours if config.resources.gpus else stage.hours, stage.hours_from, 2)
        counts = [f"{count:,}" for count in (stage.cells, stage.done, stage.units, stage.steps_per_epoch, stage.steps)]
        table.add_row(stage.name, *counts, disk, memory, hours)
    wide = Console(file=console.file, width=max(_WIDTH, console.width))
    wide.print(table)
    for line in _explanations(config, plan.stages):
        console.print(line, soft_wrap=True)
    if plan.choice is not None:
        console.print()
        for line in plan.choice.lines(config):
            console.print(line, soft_wrap=True)
        wide.print(_schedules(plan, plan.choice, config))
        if unpriced := plan.choice.unpriced:
            console.print(
                f"the price of {', '.join(unpriced)} is assumed: instead of times, the table shows multiples of the "
                f"end on {plan.choice.devices}; --measure finds real ones",
                soft_wrap=True,
            )


def axes_lines(config: SweepConfig) -> Iterator[str]:
    """What a sweep's axes are, and why they do not multiply every cell; nothing without axes."""
    from sweeps.axes import describe

    if config.axes:
        yield f"axes: {'; '.join(describe(config.axes))}"
        yield (
            f"  {len(config.points)} points; what a value does not change is trained once, such as an objective "
            "without the parameter"
        )


def search_lines(config: SweepConfig, search: SearchCost | None) -> Iterator[str]:
    """What a sweep's search trains and costs, with and without units that cells share; nothing without `tune`."""
    from runners.launch.packing import duration

    tune = config.tune
    if tune is None or search is None:
        return
    count = str(search.most) if search.fewest == search.most else f"{search.fewest} to {search.most}"
    early = f", the better ones of {tune.batch} go on after epoch {tune.stop_early.first}" if tune.stop_early else ""
    yield (
        f"search {tune.search}: {count} candidates per objective with {_count(len(tune.seeds), 'seed')}{early}: "
        f"{search.trainings:,} trainings, {search.left:,} left, in {_count(search.units, 'unit')} of "
        f"{_count(search.rounds, 'round')}; they come before the cells below"
    )
    if search.fewest < tune.budget:
        yield f"  objectives with fewer than {tune.budget} candidates have no more different ones in the space"
    if None not in (search.shared_s, search.default_s, search.unshared_s, search.default_unshared_s):
        shared, apart = search.shared_s or 0.0, search.unshared_s or 0.0
        own = f"the sweep's own grid of {_count(len(config.seeds), 'seed')}"
        yield (
            f"  device time of the search: {duration(shared)} in shared units, "
            f"{shared / (search.default_s or 1.0):.1f} times {own}; each cell by itself {duration(apart)}, "
            f"{apart / (search.default_unshared_s or 1.0):.1f} times its own"
        )
    yield "  after the search, the tuned grid costs as much as the sweep's own at most; equal cells are trained once"


def _schedules(plan: _Plan, choice: Choice, config: SweepConfig) -> Table:
    from runners.launch.packing import duration

    def written(seconds: float) -> str:
        return f"{seconds / choice.packing.schedule.end_s:.2f}" if choice.unpriced else duration(seconds)

    table = Table(box=None)
    names = [stage.name for stage in config.stages]
    columns = ("devices", *(f"{name} units" for name in names), "ends after", "at best", "longest chain")
    for column in (*columns, "idle", "tail", "device time"):
        table.add_column(column, justify="right")
    for schedule, units in plan.schedules:
        times = (schedule.end_s, schedule.bound_s, schedule.critical_s)
        table.add_row(
            str(schedule.devices),
            *(str(units.get(name, 0)) for name in names),
            *(written(seconds) for seconds in times),
            f"{100 * schedule.idle:.0f} %",
            written(schedule.tail_s),
            written(schedule.work_s),
        )
    return table


def _in_full(config: SweepConfig, plan: _Plan, stages: list[dict[str, Any]]) -> dict[str, Any]:
    why = list(plan.choice.lines(config)) if plan.choice else []
    unpriced = list(plan.choice.unpriced) if plan.choice else []
    times = ("end_s", "bound_s", "critical_s", "idle", "tail_s", "work_s")
    schedules = [
        {"devices": schedule.devices, "units": units}
        | {name: None if unpriced else getattr(schedule, name) for name in times}
        for schedule, units in plan.schedules
    ]
    search = {} if plan.search is None else {"search": asdict(plan.search)}
    return {"stages": stages, "packing": why, "schedules": schedules, "unpriced": unpriced, **search}


def _estimate(number: float | None, basis: Basis | None, digits: int) -> str:
    """Write a number to so many digits; `~` and two significant digits say that it rests on the calibration."""
    if number is None:
        return "--"
    if basis != "calibration":
        return f"{number:,.{digits}f}"
    return f"~{float(f'{number:.2g}'):,.{0 if number >= 10 else digits}f}"


def _explanations(config: SweepConfig, stages: list[StagePlan]) -> Iterator[str]:
    from runners.launch.calibration import DEVICES, FACTOR

    left = [stage for stage in stages if stage.done < stage.cells]
    bases = {basis for one in left for basis in (one.disk_from, one.hours_from, one.memory_from)}
    bases |= {one.hours_from for stage in left for one in stage.backbones}  # shown beside what is not known
    if "calibration" in bases:
        device = DEVICES["cuda" if config.resources.gpus else "cpu"].name
        yield f"~ not measured here: a calibration for {device}, right within a factor of about {FACTOR}, memory about"
        yield "  30 % (docs/planning.md); --measure trains a few steps on this machine instead"
    lines = [line for stage in left for line in _lacks(config, stage)]
    yield from lines
    if any(stage.memory_mb is not None and _unknown(stage, "memory_mb") for stage in left):
        yield ">= the memory of the other backbones"
    if any(_unknown(stage, "hours") or _unknown(stage, "memory_mb") for stage in left):
        yield "the calibration lacks these backbones; --measure trains a few steps of them for their time and memory"
    elif lines:
        yield "the calibration lacks these backbones; the first finished cells tell"


def _lacks(config: SweepConfig, stage: StagePlan) -> Iterator[str]:
    """Say which numbers of a stage are not known, and of which backbones."""
    unknown: dict[tuple[str, ...], list[str]] = {}
    for number, name in (("hours", "time"), ("disk_mb", "disk space"), ("memory_mb", "memory")):
        unknown.setdefault(tuple(_unknown(stage, number)), []).append(name)
    for backbones, numbers in unknown.items():
        if backbones:
            known = [one for one in stage.backbones if one.hours is not None] if "time" in numbers else []
            *firsts, last = numbers
            names = f"{', '.join(firsts)} or {last}" if firsts else last
            yield f"-- {stage.name}: no {names} is known of {', '.join(backbones)}{_rest(config, known)}"


def _unknown(stage: StagePlan, number: str) -> list[str]:
    """The backbones of which a number of a stage is not known."""
    return [one.name for one in stage.backbones if getattr(one, number) is None]


def _rest(config: SweepConfig, known: Sequence[BackbonePlan]) -> str:
    """What the backbones of a stage take of which the time is known."""
    if not known:
        return ""
    gpus, bases = config.resources.gpus or 1.0, [one.hours_from for one in known]
    hours = sum(one.hours or 0.0 for one in known) * gpus
    written = _estimate(hours, "calibration" if "calibration" in bases else bases[0], 2)
    return f"; {', '.join(one.name for one in known)}: {written} {'GPU' if config.resources.gpus else 'device'} hours"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
