"""How many cells a unit gets where `cells_per_unit` is `auto`: as many as let the sweep end earliest.

Every number of cells is tried in a simulation of the launch on the devices at hand. Cells that have much in common, as
with a frozen backbone, come out together as long as all devices have work; cells that have little in common, as in
fine-tuning, come out spread over all devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from runners.launch.devices import Devices
from runners.launch.prices import Prices
from runners.launch.simulation import PlannedUnit, Schedule, simulate
from sweeps import SweepConfig, Training, Unit, pack, pack_chain

ALIKE = 1.02
"""Ends that differ by less than this factor count as equal; of these packings, the cheapest is taken."""
ALIKE_COST = 1.05
"""The same for device time on a cluster that adds machines, where it counts first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How a launch packs what it has to train, and what it expects of it."""

    limits: Mapping[str, int]
    """The largest number of cells in a unit, by the name of the stage; only where `cells_per_unit` is `auto`."""
    units: Sequence[tuple[Unit, int | None]]
    """As of `pack_chain`."""
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Choice:
    """A packing that was chosen, and those that it was chosen from."""

    packing: Packing
    others: Sequence[Packing]
    devices: Devices
    priced: bool
    """Whether the prices are more than an assumption, so that hours mean something."""
    too_large: Mapping[str, int]
    """The largest number of cells that fits into a device's memory, for stages where that is a limit."""

    def lines(self, config: SweepConfig) -> Iterator[str]:
        """Say for each stage how it is packed, and why."""
        counts = units_by_stage([unit for unit, _ in self.packing.units])
        for stage in config.stages:
            if not (sizes := counts.get(stage.name)):
                continue
            head = f"{stage.name}: {sum(sizes)} cells as {_units(sizes)} on {self.devices}"
            if stage.name in self.packing.limits:
                yield f"{head}, because {self._reason(stage.name)}"
            elif config.execution.sharing_of(stage) == "none":
                yield f"{head} (sharing: none)"
            else:
                yield f"{head} (cells_per_unit: {config.execution.limit_of(stage)})"

    def _reason(self, stage: str) -> str:
        chosen = self.packing
        rest = {**chosen.limits, stage: 0}
        other = {one.limits[stage]: one for one in self.others if {**one.limits, stage: 0} == rest}
        ends = [other[size] for size in sorted({max(other), min(other)} - {chosen.limits[stage]}, reverse=True)]
        if not ends:
            return "there is no other way"
        limit = f"; no more than {self.too_large[stage]} fit into its memory" if stage in self.too_large else ""
        others = ", ".join(f"with {_of(one.limits[stage])} {self._end(one)}" for one in ends)
        return f"the sweep then ends after {self._end(chosen)}; {others}{limit}"

    def _end(self, packing: Packing) -> str:
        if self.priced:
            return f"{duration(packing.schedule.end_s)} (device time {duration(packing.schedule.work_s)})"
        return f"{packing.schedule.end_s / self.packing.schedule.end_s:.2f} of this time (assumed prices)"


def choose(trainings: Sequence[Training], config: SweepConfig, prices: Prices, devices: Devices) -> Choice:
    """Choose the packing with which some trainings end earliest.

    Of packings that end at the same time within 2 %, the one with the least device time is taken, then the one with the
    fewest units. On a cluster that adds machines, device time comes first, because more units bring more machines.

    Args:
        trainings: the trainings still to do, of all stages.
        config: the sweep.
        prices: what units cost.
        devices: the devices at hand.

    Returns:
        The packing; the same for the same arguments.
    """
    groups = _largest_groups(trainings, config)
    fit = {stage: prices.most_cells(stage, trainings, devices.memory_mb) for stage in groups}
    sizes = {stage: [k for k in _sizes(most) if k <= max(1, fit[stage] or most)] for stage, most in groups.items()}
    cache: dict[tuple[object, ...], tuple[float, float]] = {}
    tried = [
        _packing(dict(zip(sizes, limits, strict=True)), trainings, config, prices, devices, cache)
        for limits in product(*sizes.values())
    ]
    too_large = {stage: most for stage, most in fit.items() if most is not None and most < groups[stage]}
    priced = all(prices.basis(unit) != "assumed" for unit, _ in tried[0].units)
    return Choice(_best(tried, devices), tried, devices, priced, too_large)


def _best(tried: Sequence[Packing], devices: Devices) -> Packing:
    if devices.grows:
        cost = ALIKE_COST * min(one.schedule.work_s for one in tried)
        cheap = [one for one in tried if one.schedule.work_s <= cost]
        return min(cheap, key=lambda one: (one.schedule.critical_s, -len(one.units)))
    end = ALIKE * min(one.schedule.end_s for one in tried)
    early = [one for one in tried if one.schedule.end_s <= end]
    return min(early, key=lambda one: (one.schedule.work_s, len(one.units)))


def remaining_s(unit: Unit, later: Mapping[Training, Sequence[Training]], config: SweepConfig, auto: Mapping[str, int],
                prices: Prices) -> float:  # fmt: skip
    """Device seconds of a unit and of the longest chain of units that follows it.

    Args:
        unit: the unit.
        later: the trainings that start from each training.
        config: the sweep.
        auto: as of `pack`.
        prices: what units cost.
    """
    follow = pack([one for before in unit.trainings for one in later.get(before, ())], config.execution, auto)
    return prices.seconds(unit) + max((remaining_s(one, later, config, auto, prices) for one in follow), default=0.0)


def planned(
    units: Sequence[tuple[Unit, int | None]],
    config: SweepConfig,
    prices: Prices,
    cache: dict[tuple[object, ...], tuple[float, float]] | None = None,
) -> list[PlannedUnit]:
    """Turn units into what the simulation takes, in the order in which a launch starts them.

    Args:
        units: as of `pack_chain`.
        config: the sweep.
        prices: what units cost.
        cache: prices found before, by kind of unit.
    """
    cache = {} if cache is None else cache
    number = {stage.name: place for place, stage in enumerate(config.stages)}
    costs = []
    for unit, _ in units:
        kind = (unit.trainings[0].cell.model, unit.stage.name, len(unit.trainings))
        if kind not in cache:
            cache[kind] = prices.start_s(unit) + prices.seconds(unit), prices.once_s(unit)
        costs.append(cache[kind])
    remaining = [seconds for seconds, _ in costs]
    for place in range(len(units) - 1, -1, -1):  # those that follow a unit come after it
        after = units[place][1]
        if after is not None:
            remaining[after] = max(remaining[after], costs[after][0] + remaining[place])
    return [
        PlannedUnit(
            seconds=seconds,
            after=after,
            rank=(number[unit.stage.name], -remaining[place]),
            once=f"{unit.trainings[0].cell.model} {unit.trainings[0].cell.seed}" if once else "",
            once_s=once,
        )
        for place, ((unit, after), (seconds, once)) in enumerate(zip(units, costs, strict=True))
    ]


def units_by_stage(units: Sequence[Unit]) -> dict[str, list[int]]:
    """The numbers of cells of the units of each stage."""
    counts: dict[str, list[int]] = {}
    for unit in units:
        counts.setdefault(unit.stage.name, []).append(len(unit.trainings))
    return counts


def duration(seconds: float) -> str:
    """Write a time with the unit that suits it: `45 s`, `12 min`, `3.2 h`, `4.1 days`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _packing(
    limits: Mapping[str, int],
    trainings: Sequence[Training],
    config: SweepConfig,
    prices: Prices,
    devices: Devices,
    cache: dict[tuple[object, ...], tuple[float, float]],
) -> Packing:
    units = pack_chain(trainings, config.execution, limits)
    schedule = simulate(planned(units, config, prices, cache), devices.count)
    return Packing(limits=limits, units=units, schedule=schedule)


def _largest_groups(trainings: Sequence[Training], config: SweepConfig) -> dict[str, int]:
    """The most cells that could share a unit, by stage; only stages whose number is to be chosen."""
    largest: dict[str, int] = {}
    for unit in pack(trainings, config.execution):
        stage = unit.stage
        if config.execution.limit_of(stage) == "auto" and config.execution.sharing_of(stage) != "none":
            largest[stage.name] = max(largest.get(stage.name, 0), len(unit.trainings))
    return largest


def _sizes(most: int) -> list[int]:
    """The sizes that split a group of cells into different numbers of units, the largest first."""
    return sorted({-(-most // parts) for parts in range(1, most + 1)}, reverse=True)


def _units(sizes: Sequence[int]) -> str:
    least, most = min(sizes), max(sizes)
    cells = f"{most}" if least == most else f"{least} to {most}"
    return f"{len(sizes)} unit{'s' if len(sizes) > 1 else ''} of {cells}"


def _of(limit: int) -> str:
    return "units of 1" if limit == 1 else f"units of up to {limit}"
