"""How trainings are packed into units: as many cells as let their stage end earliest, and as fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.estimates import memory_mb
from goal_sweep.runners.planning.speeds import Speeds, common_part, solo_times
from goal_sweep.sweeps import SweepConfig, Training, Unit, pack
from goal_sweep.sweeps.units import pack_chain

TIE: Final = 1.05
"""Ends and device times that differ by no more than this factor count as equal."""
FILLED: Final = 0.85
"""Share of a device's memory that units may plan to use."""


class Packing(NamedTuple):
    """How a launch packs some trainings."""

    units: Sequence[Unit]
    limits: Mapping[str, int]
    """The largest number of cells in a unit, by stage, where `cells_per_unit` is `auto`."""
    seconds: Callable[[Unit], float | None]
    """Device seconds of a unit; None where nothing is known of its backbone."""
    lines: Sequence[str]
    """How each stage is packed and why, and what does not fit into memory."""


def pack_for(trainings: Sequence[Training], devices: Devices, speeds: Speeds) -> Packing:
    """Pack the trainings still to do, at least one, into units that suit the devices and their memory.

    The packing does not depend on the speeds.
    """
    config, size, most = speeds.config, speeds.size, dict[str, int]()
    usable_mb = FILLED * (devices.memory_mb or float("inf"))
    for unit in pack(trainings, config.execution) if devices.memory_mb else ():
        one, two = (memory_mb(Unit(trainings=unit.trainings[:1] * count), config, size) for count in (1, 2))
        if one is not None and two is not None:
            cells = max(0, 1 + int((usable_mb - one) // (two - one)))
            most[unit.stage.name] = min(cells, most.get(unit.stage.name, cells))
    limits = choose(trainings, config, devices.count, most)
    units = pack_chain(trainings, config.execution, limits)
    lines = []
    for name in dict.fromkeys(unit.stage.name for unit in units):
        own = [unit for unit in units if unit.stage.name == name]
        lines.append(_packed(own, limits, most, devices))
        needed_mb = max((memory_mb(unit, config, size) or 0.0 for unit in own), default=0.0)
        if needed_mb > usable_mb:
            lines.append(
                f"  a unit needs {needed_mb / 1000:.1f} GB of {usable_mb / 1000:.1f} GB, {100 * FILLED:.0f} % of a "
                "device's memory; a launch halves micro_batch (same gradient) until its cells fit, where the model "
                "allows that, and precision=bf16 (other results) needs less"
            )
    return Packing(units, limits, speeds.seconds, lines)


def choose(trainings: Sequence[Training], config: SweepConfig, count: int, fit: Mapping[str, int]) -> dict[str, int]:
    """Choose the largest number of cells in the units of each stage for which the sweep leaves it open.

    Where several numbers end alike, the fewest units are taken, because each has to start.

    Args:
        fit: by stage, the most cells whose unit fits into memory, 0 for none.
    """
    groups: dict[str, int] = {}
    is_open = config.execution.cells_per_unit == "auto" and config.execution.sharing != "none"
    for unit in pack(trainings, config.execution) if is_open else ():
        groups[unit.stage.name] = max(groups.get(unit.stage.name, 0), len(unit.trainings))
    limits: dict[str, int] = {}
    for stage, group in groups.items():
        largest, costs = min(group, max(1, fit.get(stage, group))), dict[int, tuple[float, int]]()
        for limit in {-(-largest // parts) for parts in range(1, largest + 1)}:
            chain = pack_chain(trainings, config.execution, {**limits, stage: limit})
            times = [solo_times(unit) for unit in chain if unit.stage.name == stage]
            costs[limit] = _turns(times, count), len(times)
        least = TIE * min(cost for cost, _ in costs.values())
        alike = {limit: units for limit, (cost, units) in costs.items() if cost <= least}
        limits[stage] = max(alike, key=lambda limit: (-alike[limit], -limit))
    return limits


def end_s(units: Sequence[Unit], seconds: Callable[[Unit], float | None], count: int) -> float | None:
    """Seconds until so many devices have trained units, one stage after the other; None without those of a unit."""
    stages: dict[str, list[float]] = {}
    for unit in units:
        if (taken := seconds(unit)) is None:
            return None
        stages.setdefault(unit.stage.name, []).append(taken)
    return sum(_turns(own, count) for own in stages.values())


def _turns(times: Sequence[float], count: int) -> float:
    """How long units take in turns on so many devices, the longest first."""
    return sum(sorted(times, reverse=True)[::count])


def _packed(units: Sequence[Unit], limits: Mapping[str, int], most: Mapping[str, int], devices: Devices) -> str:
    """Say how a stage is packed, and why."""
    stage, sizes = units[0].stage.name, [len(unit.trainings) for unit in units]
    cells = f"{max(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    why = "as the sweep sets it"
    if stage in limits:
        why = f"ends earliest, as cells of a unit share {100 * common_part(units[0]):.0f} % of their work"
        why += f"; no more than {most[stage]} fit into memory" if limits[stage] == most.get(stage) else ""
    what = f"{sum(sizes)} training{'s' * (sum(sizes) > 1)} as {len(units)} unit{'s' * (len(units) > 1)} of {cells}"
    return f"{stage}: {what} on {devices}: {why}"
