"""What a sweep will cost before anything runs, and how a launch packs it.

The end is that of stages one after the other, each with its units in turns on the devices, the longest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from goal_sweep.goal_core.data import num_batches
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.packing import choose, common_part
from goal_sweep.runners.planning.prices import Kind, Prices, by_kind, largest
from goal_sweep.sweeps import Training, Unit, pack_chain

FILLED: Final = 0.85
"""Share of a device's memory that units may plan to use."""


class Packing(NamedTuple):
    """How a launch packs some trainings."""

    limits: Mapping[str, int]
    """The largest number of cells in a unit, by stage, where `cells_per_unit` is `auto`."""
    units: Sequence[Unit]
    prices: Prices
    """What the units cost as they will run."""
    end_s: float | None
    """Seconds until the last unit has ended; None without a price of each."""
    lanes: int
    """Units that train at the same time."""
    lines: Sequence[str]
    """How each stage is packed and why, and what does not fit into memory."""


def fit(trainings: Sequence[Training], prices: Prices, devices: Devices) -> Packing:
    """Pack trainings into units that suit the devices and their memory.

    Args:
        trainings: the trainings still to do, of all stages; at least one.
        prices: what units cost.
        devices: the devices at hand.
    """
    config, stages = prices.config, dict.fromkeys(one.stage.name for one in trainings)
    slots = devices.slots(1)
    usable_mb = FILLED * (devices.memory_mb or float("inf")) * devices.count / slots
    most: dict[str, int] = {}
    for (_, name), alike in by_kind(trainings).items() if devices.memory_mb else ():
        if (cells := prices.most_cells(alike[0], usable_mb)) is not None:
            most[name] = min(cells, most.get(name, cells))
    limits = choose(trainings, config, slots, most)
    units = pack_chain(trainings, config.execution, limits)
    lines, chunks = [_packed(name, units, limits, most, slots, devices) for name in stages], dict[Kind, int]()
    for kind, unit in largest(units).items():
        needed_mb = prices.memory_mb(unit)
        if needed_mb is not None and needed_mb > usable_mb:
            chunk = prices.fitting_chunk(unit, usable_mb)
            chunks |= {} if chunk is None else {kind: chunk}
            lines += _too_large(unit, needed_mb, usable_mb, chunk)
    prices = replace(prices, chunks=chunks)
    return Packing(limits, units, prices, _end_s(units, prices, slots, devices.count), min(slots, len(units)), lines)


def _end_s(units: Sequence[Unit], prices: Prices, slots: int, devices: int) -> float | None:
    """Seconds until units end. Those that share a GPU are taken to gain nothing by it."""
    end = 0.0
    for name in dict.fromkeys(unit.stage.name for unit in units):
        own = [unit for unit in units if unit.stage.name == name]
        known = [seconds * slots / devices for unit in own if (seconds := prices.seconds(unit)) is not None]
        if len(known) < len(own):
            return None
        once = {unit.features: prices.once_s(unit) for unit in own}.values()
        end += sum(sorted(known, reverse=True)[::slots]) + sum(sorted(once, reverse=True)[::slots])
    return end


def _packed(
    stage: str, units: Sequence[Unit], limits: Mapping[str, int], most: Mapping[str, int], slots: int, devices: Devices
) -> str:
    """Say how a stage is packed, and why."""
    own = [unit for unit in units if unit.stage.name == stage]
    sizes = [len(unit.trainings) for unit in own]
    cells = f"{max(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    why = "as the sweep sets it"
    if stage in limits:
        turns = -(-len(own) // slots)
        why = f"ends earliest, in {turns} turn{'s' * (turns > 1)}"
        why += f", as those of a unit share {100 * common_part(own[0]):.0f} % of their work"
        why += f"; no more than {most[stage]} fit into memory" if limits[stage] == most.get(stage) else ""
    what = f"{sum(sizes)} training{'s' * (sum(sizes) > 1)} as {len(own)} unit{'s' * (len(own) > 1)} of {cells}"
    return f"{stage}: {what} on {devices}: {why}"


def _too_large(unit: Unit, needed_mb: float, usable_mb: float, chunk: int | None) -> Iterator[str]:
    """Say that a unit does not fit into memory, and how a launch goes on."""
    name, cells = unit.stage.name, len(unit.trainings)
    what = "not even one cell fits" if cells == 1 else f"units of {cells} cells do not fit"
    room = f"{usable_mb / 1000:.1f} GB, {100 * FILLED:.0f} % of a device's memory"
    yield f"{name}: {what} as set: {needed_mb / 1000:.1f} GB of {room}"
    if chunk is None:
        yield "  no part of a batch fits either, or none can be split: expect these cells to fail"
    else:
        yield f"  a launch comes down to stages.{name}.micro_batch={chunk} (same gradient), and the hours are those"
    yield "  precision=bf16 (with other results) needs less"


def plan_rows(
    parts: Sequence[tuple[str, Sequence[Training]]], prices: Prices, devices: Devices, left: Collection[Training]
) -> tuple[list[dict[str, Any]], list[Packing]]:
    """Plan a sweep.

    Args:
        parts: trainings that wait for all of the part before, such as the rounds of a search and then the grid, each
            with the words before the names of its stages.
        prices: what units cost.
        devices: the devices to plan for.
        left: the trainings still to do.

    Returns:
        A row for each model in each stage, as `plan --json` has it, and the packing of each part that has work left.
    """
    rows: dict[tuple[str, Kind], tuple[list[Training], list[Unit]]] = {}
    packings = []
    for label, part in parts:
        for kind, alike in by_kind(part).items():
            rows.setdefault((label, kind), ([], []))[0].extend(alike)
        if todo := [one for one in part if one in left]:
            packings.append(fit(todo, prices, devices))
            for unit in packings[-1].units:
                rows[label, unit.kind][1].append(unit)
    prices = packings[-1].prices if packings else prices
    return [_row(label, *row, prices) for (label, _), row in rows.items()], packings


def _row(label: str, trainings: Sequence[Training], units: Sequence[Unit], prices: Prices) -> dict[str, Any]:
    """What is left of one model in a stage costs. Hours are device hours; what is not known is None."""
    first, left = trainings[0], [one for unit in units for one in unit.trainings]
    steps = num_batches(prices.size.captions, first.stage.batch_size, first.stage.drop_last)
    disk = [mb for unit in units if (mb := prices.disk_mb(unit)) is not None]
    memory_mb = max((mb for unit in units if (mb := prices.memory_mb(unit)) is not None), default=None)
    seconds = {"hours": prices.total_s(units), "alone_hours": prices.total_s(Unit(trainings=(one,)) for one in left)}
    hours = {name: None if total is None else total / 3600 for name, total in seconds.items()}
    return {
        "stage": label + first.stage.name,
        "backbone": first.cell.model.backbone.name,
        "trainings": len(trainings),
        "done": len(trainings) - len(left),
        "units": len(units),
        "steps_per_epoch": steps,
        "steps": sum(one.epochs for one in left) * steps,
        "disk_mb": sum(disk) if len(disk) == len(units) else None,
        "memory_mb": memory_mb,
        "memory_from": None if memory_mb is None else prices.memory_basis(units[0]),
        **hours,
        "gpu_hours": None if hours["hours"] is None else hours["hours"] * prices.config.resources.gpus,
        "hours_from": prices.basis(units[0]) if units else None,
    }
