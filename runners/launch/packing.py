"""How many cells a unit gets where `cells_per_unit` is `auto`: as many as let the sweep end earliest.

Every number of cells is tried in a simulation of the launch on the devices at hand. Cells that have much in common, as
with a frozen backbone, come out together as long as all devices have work; cells that have little in common, as in
fine-tuning, come out spread over all devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from runners.launch import gpu_share
from runners.launch.devices import Devices
from runners.launch.gpu_share import WORTH, Fit
from runners.launch.order import Costs, planned
from runners.launch.prices import FILLED, Memory, Prices
from runners.launch.simulation import Schedule, simulate
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
    per_gpu: Mapping[str, int] = field(default_factory=dict)
    """How many units share a GPU, by the name of the stage; 1 where there is none."""
    features_first: bool = False
    """Whether the units that compute cached features start before those that wait for the same features (`ranks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A packing that was chosen, and those that it was chosen from."""

    packing: Packing
    others: Sequence[Packing]
    devices: Devices
    prices: Prices
    """The prices that it was chosen by."""
    unpriced: Sequence[str]
    """The backbones whose price is assumed. If there are any, the times of the schedules mean nothing but ratios."""
    groups: Mapping[str, int]
    """The most cells that could share a unit, by stage; only where `cells_per_unit` is `auto`."""
    too_large: Mapping[str, int]
    """The largest number of cells that fits into a device's memory, for stages where that is a limit."""
    unsized: Mapping[str, Sequence[str]]
    """The backbones whose memory is not known, by stage; they were left out of that limit."""
    together: Mapping[str, Memory]
    """The largest unit of each stage whose memory is known."""
    unshared: Packing
    """The best packing in which units share GPUs only as the sweep asks; often the packing itself."""
    fits: Mapping[str, Fit]
    """How many units of each stage could share a GPU, in the packing; empty where a unit asks for no single GPU."""

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
        yield from self._sharing_a_gpu(config)
        if self.devices.missing:
            yield f"{self.devices.missing}: planned as if there were {self.devices}"

    def _sharing_a_gpu(self, config: SweepConfig) -> Iterator[str]:
        """How many units share a GPU, and why."""
        share = config.resources.gpus
        if share == 1:
            without, own = self.unshared.schedule.end_s, self.packing.schedule.end_s
            ends = f"; the sweep then ends after {duration(own)}, with a GPU for each unit after {duration(without)}"
            alike = self.packing is self.unshared or self.unpriced
            yield from gpu_share.lines(config, self.fits, self.packing.per_gpu, self.devices, "" if alike else ends)
        if not 0 < share < 1 or self.devices.memory_mb is None:
            return
        whole, now = self.devices.memory_mb / share, int(1 / share + 1e-6)
        for stage, memory in self.together.items():
            fits = int(FILLED * whole / memory.mb)
            basis = "measured" if memory.basis == "measured" else "estimated; --measure finds out"
            if fits < now:
                takes = f"{stage}: its largest unit takes {memory.mb:,.0f} MB of {whole:,.0f} MB of a GPU ({basis})"
                yield f"{takes}, where resources.gpus={share:g} puts {now}: raise it, or lower cells_per_unit"

    def _reason(self, stage: str) -> str:
        others, limit = self._others(stage), self._memory_limit(stage)
        if not others and self.groups[stage] == 1:
            return "no two of them differ only in their objective"
        if not others:
            return limit or "the units before them have no more cells"
        if self.unpriced:
            ratios = [(one.schedule.end_s / self.packing.schedule.end_s, sizes) for sizes, one in others]
            times = ", ".join(f"{ratio:.2f} times as long {_with(sizes)}" for ratio, sizes in ratios)
            reason = f"the sweep takes {times} (assumed prices: {', '.join(self.unpriced)})"
        else:
            own = _end(self.packing)
            ends = [(_end(one), sizes) for sizes, one in others]
            times = "; ".join(
                _with(sizes) + (f" the same, in {len(sizes)} units" if end == own else f", after {end}")
                for end, sizes in ends
            )
            reason = f"the sweep then ends after {own}; {times}"
        return f"{reason}; {limit}" if limit else reason

    def _others(self, stage: str) -> list[tuple[list[int], Packing]]:
        """The packings with the fewest and with the most units of a stage where all else is alike, and their sizes.

        What counts is what comes out: a limit of 4 gives units of 1 where the units before them have one cell each.
        """
        rest = {**self.packing.limits, stage: 0}
        found: dict[int, tuple[list[int], Packing]] = {}
        for one in (self.packing, *self.others):
            if {**one.limits, stage: 0} == rest:
                sizes = units_by_stage([unit for unit, _ in one.units])[stage]
                found.setdefault(len(sizes), (sizes, one))
        return [found[count] for count in sorted({min(found), max(found)}) if found[count][1] is not self.packing]

    def _memory_limit(self, stage: str) -> str:
        """What memory forbids in a stage; empty for nothing."""
        if stage not in self.too_large:
            return ""
        count, unsized = self.too_large[stage], self.unsized.get(stage, ())
        left_out = f" (that of {', '.join(unsized)} is not known)" if unsized else ""
        return f"no more than {count} fit{'s' if count == 1 else ''} into its memory{left_out}"


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
    prices, groups = prices.with_assumed(trainings), _largest_groups(trainings, config)
    kinds = {(one.stage.name, one.cell.model): Unit(trainings=(one,)) for one in trainings}
    fit = {stage: prices.most_cells(stage, trainings, devices.memory_mb) for stage in groups}
    sizes = {stage: [k for k in _sizes(most) if k <= max(1, fit[stage] or most)] for stage, most in groups.items()}
    cache: Costs = {}
    tried = []
    for numbers in product(*sizes.values()):
        limits = dict(zip(sizes, numbers, strict=True))
        units = pack_chain(trainings, config.execution, limits)
        tried.append(_packing(limits, units, config, prices, devices, cache, gpu_share.asked(config)))
    too_large = {stage: most for stage, most in fit.items() if most is not None and most < groups[stage]}
    unsized: dict[str, list[str]] = {}
    for (stage, model), unit in kinds.items():
        if prices.memory(unit) is None:
            unsized.setdefault(stage, []).append(model.backbone.name)
    unshared = _best(tried, devices)
    shared = _shared(tried, unshared, config, prices, devices, cache)
    best = _best_shared(shared) if shared else unshared
    return Choice(
        packing=best,
        others=shared or tried,
        devices=devices,
        prices=prices,
        unpriced=sorted({model.backbone.name for (_, model), unit in kinds.items() if prices.basis(unit) == "assumed"}),
        groups=groups,
        too_large=too_large,
        unsized=unsized,
        together=_largest_memory(best.units, prices),
        unshared=unshared,
        fits=_fits(best, config, prices, devices),
    )


def _fits(packing: Packing, config: SweepConfig, prices: Prices, devices: Devices) -> dict[str, Fit]:
    """How many units of each stage could share a GPU."""
    if config.resources.gpus != 1:
        return {}
    stages: dict[str, list[Unit]] = {}
    for unit, _ in packing.units:
        stages.setdefault(unit.stage.name, []).append(unit)
    return {name: gpu_share.fit(units, prices, devices) for name, units in stages.items()}


def _shared(
    tried: Sequence[Packing],
    unshared: Packing,
    config: SweepConfig,
    prices: Prices,
    devices: Devices,
    cache: Costs,
) -> list[Packing]:
    """The packings again, with the best numbers of units on a GPU; empty where none ends early enough."""
    latest, found = WORTH * unshared.schedule.end_s, []
    for one in tried:
        if one.schedule.critical_s > latest:
            continue
        ways = gpu_share.candidates(config, _fits(one, config, prices, devices))
        packings = [_packing(one.limits, one.units, config, prices, devices, cache, way) for way in ways]
        found += [_best_shared(packings)] if packings else []
    return found if any(one.schedule.end_s <= latest for one in found) else []


def _best_shared(packings: Sequence[Packing]) -> Packing:
    """The packing that ends earliest; of those that end alike, the one that shares least."""
    end = ALIKE * min(one.schedule.end_s for one in packings)
    early = [one for one in packings if one.schedule.end_s <= end]
    return min(early, key=lambda one: (sum(one.per_gpu.values()), one.schedule.work_s, len(one.units)))


def _largest_memory(units: Sequence[tuple[Unit, int | None]], prices: Prices) -> dict[str, Memory]:
    """The memory of the largest unit of each stage, as far as all of them are known."""
    found: dict[str, Memory | None] = {}
    kinds = {(unit.stage.name, unit.trainings[0].cell.model, len(unit.trainings)): unit for unit, _ in units}
    for (stage, *_), unit in kinds.items():
        memory, other = prices.memory(unit), found.get(stage, Memory(0.0, "measured"))
        found[stage] = None if memory is None or other is None else max(memory, other)
    return {stage: memory for stage, memory in found.items() if memory is not None}


def _best(tried: Sequence[Packing], devices: Devices) -> Packing:
    if devices.grows:
        cost = ALIKE_COST * min(one.schedule.work_s for one in tried)
        cheap = [one for one in tried if one.schedule.work_s <= cost]
        return min(cheap, key=lambda one: (one.schedule.critical_s, -len(one.units)))
    end = ALIKE * min(one.schedule.end_s for one in tried)
    early = [one for one in tried if one.schedule.end_s <= end]
    return min(early, key=lambda one: (one.schedule.work_s, len(one.units)))


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
    units: Sequence[tuple[Unit, int | None]],
    config: SweepConfig,
    prices: Prices,
    devices: Devices,
    cache: Costs,
    per_gpu: Mapping[str, int],
) -> Packing:
    slots = {stage: min(units, devices.units_each) for stage, units in per_gpu.items()}  # cores limit what Ray starts
    plain = planned(units, config, prices, cache, per_gpu=slots)
    schedule, features_first = simulate(plain, devices.count), False
    if any(unit.once for unit in plain):
        ordered = planned(units, config, prices, cache, features_first=True, per_gpu=slots)
        first = simulate(ordered, devices.count)
        if (first.end_s, first.work_s) < (schedule.end_s, schedule.work_s):
            schedule, features_first = first, True
    return Packing(limits=limits, units=units, schedule=schedule, per_gpu=per_gpu, features_first=features_first)


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


def _with(sizes: Sequence[int]) -> str:
    return "with units of 1" if max(sizes) == 1 else f"with units of up to {max(sizes)}"


def _end(packing: Packing) -> str:
    return f"{duration(packing.schedule.end_s)} (device time {duration(packing.schedule.work_s)})"
