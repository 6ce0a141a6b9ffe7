"""How many units of a stage share a GPU where `units_per_gpu` is `auto`: as many as fit and let the sweep end earliest.

Sharing helps only where a unit leaves its GPU idle, because it waits for images or starts small kernels. So no more
units share one than together keep it busy, and none do unless the simulated launch then ends a good deal earlier. Where
something is not known that this needs, each unit has a GPU of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from runners.launch.devices import Devices
from runners.launch.prices import FILLED, Memory, Prices
from sweeps import SweepConfig, Unit

MOST: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of units on a GPU that are tried."""
WORTH: Final = 0.9
"""A sweep must end within this part of its time without sharing. What units cost beside each other was not measured."""
OTHERS_MB: Final = 2000.0
"""More memory than this in use before a launch begins means that others work on the GPU; a desktop takes less."""
_BASES: Final = {
    "finished": "recorded of finished trainings",
    "measured": "measured",
    "calibration": "estimated, doubled for safety; --measure finds out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many units of a stage could share a GPU, and what allows no more."""

    most: int
    limit: str
    """What allows no more, as the end of a sentence."""
    cells: int = 0
    """Cells of the largest unit."""
    memory: Memory | None = None
    """Of the unit that needs most; None if it is not known."""
    busy: float = 1.0
    """Share of its time in which the unit that leaves its GPU idle most keeps it busy."""


def fit(units: Sequence[Unit], prices: Prices, devices: Devices) -> Fit:
    """How many units of a stage could share a GPU.

    Args:
        units: the stage's units.
        prices: what they cost.
        devices: the devices at hand, each one GPU.
    """
    kinds = {(unit.trainings[0].cell.model, len(unit.trainings)): unit for unit in units}
    found = [(unit, prices.beside_others(unit), prices.busy(unit)) for unit in kinds.values()]
    names = sorted(
        {unit.trainings[0].cell.model.backbone.name for unit, memory, busy in found if not (memory and busy)}
    )
    if devices.memory_mb is None:
        return Fit(most=1, limit="the memory of a GPU is not known")
    if names:
        return Fit(most=1, limit=f"what a unit of {', '.join(names)} needs is not known")
    most, memory = max(((unit, memory) for unit, memory, _ in found if memory), key=lambda one: one[1].mb)
    busy = min(busy for *_, busy in found if busy is not None)
    resources = prices.config.resources
    cores = max(1, devices.units_each * resources.cpus // max(resources.cpus, resources.loader_workers))
    needs = f"a unit needs {_gb(memory.mb)} of {_gb(devices.memory_mb)} ({_BASES[memory.basis]})"
    limits = [
        (int(FILLED * (devices.memory_mb - devices.others_mb) / memory.mb), needs),
        (cores, f"the cores beside a GPU leave room for {cores} (resources.cpus, loader_workers)"),
        (math.ceil(1 / busy), f"a unit keeps it busy for {100 * busy:.0f} % of the time"),
        (len(units), f"there are {len(units)} units"),
        (MOST[-1], f"no more than {MOST[-1]} are tried"),
    ]
    if devices.grows:
        limits.insert(0, (1, "the cluster adds machines by itself"))
    if devices.others_mb > OTHERS_MB:
        limits.insert(0, (1, f"others use {_gb(devices.others_mb)} of a GPU of this machine"))
    least, why = min(limits, key=lambda one: one[0])
    return Fit(most=max(1, least), limit=why, cells=len(most.trainings), memory=memory, busy=busy)


def asked(config: SweepConfig) -> dict[str, int]:
    """How many units share a GPU, by the names of the stages for which the sweep says it."""
    found = {stage.name: config.execution.units_per_gpu_of(stage) for stage in config.stages}
    return {name: units for name, units in found.items() if isinstance(units, int)}


def candidates(config: SweepConfig, fits: Mapping[str, Fit]) -> Iterator[dict[str, int]]:
    """Every way to share GPUs in some stages at least, where the sweep does not say how many units do."""
    set_already = asked(config)
    tried = {name: [k for k in MOST if k <= one.most] for name, one in fits.items() if name not in set_already}
    for numbers in product(*tried.values()):
        if any(units > 1 for units in numbers):
            yield {**set_already, **dict(zip(tried, numbers, strict=True))}


def lines(
    config: SweepConfig, fits: Mapping[str, Fit], chosen: Mapping[str, int], devices: Devices, ends: str
) -> Iterator[str]:
    """Say for each stage how many of its units share a GPU, and why.

    Args:
        config: the sweep.
        fits: what could share one, by stage.
        chosen: how many do; stages that are not there have a GPU for each unit.
        devices: the devices at hand.
        ends: when the sweep ends with that and without it; empty where that is not known.
    """
    set_already, alone = asked(config), dict[str, list[str]]()
    for name, one in fits.items():
        units = chosen.get(name, 1)
        if name in set_already:
            if units > 1:
                more = f"; no more than {one.most} should: {one.limit}" if units > one.most else ""
                yield f"{name}: {units} units share each GPU (units_per_gpu: {units}){more}"
        elif units > 1 and one.memory and devices.memory_mb:
            yield (
                f"{name}: {units} units of {one.cells} cell{'s' if one.cells > 1 else ''} share each GPU: a unit needs "
                f"{_gb(one.memory.mb)} of {_gb(devices.memory_mb)} ({_BASES[one.memory.basis]}), and keeps it busy for "
                f"about {100 * one.busy:.0f} % of the time{ends}"
            )
        elif one.most == 1:
            alone.setdefault(one.limit, []).append(name)
        else:
            more = (
                f"the sweep would not end {100 - 100 * WORTH:.0f} % earlier with several on one ({one.most} have room)"
            )
            alone.setdefault(more, []).append(name)
    for why, names in alone.items():
        yield f"{', '.join(names)}: each unit has a GPU of its own, because {why}"


def _gb(mb: float) -> str:
    return f"{mb / 1000:.1f} GB" if mb < 10_000 else f"{mb / 1000:.0f} GB"
