"""How trainings are packed into units, as many cells as let their stage end earliest and as fit; how long units take.

That is steps x seconds of a step, which are measured, recorded or counted. The cells of a unit have a part c of their
work in common, so a unit of k cells takes as long as c + k (1 - c) cells by themselves. The parts are constants, so
that a plan and a launch choose alike, whatever has been measured.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.data.dataset import num_batches
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.sizes import DataSize, backbone_name
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.execution.session import Resources
from goal_sweep.runners.planning.devices import Devices, to_plan_for
from goal_sweep.runners.planning.estimates import CORE, DEFAULT, Card, card_named, memory_mb, step_s
from goal_sweep.runners.planning.processes import apart
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.sweeps import SweepConfig, Training, Unit, pack
from goal_sweep.sweeps.units import pack_chain

if TYPE_CHECKING:
    from goal_sweep.goal_core.training import UnitPlan

TIE: Final = 1.05
"""Ends and device times that differ by no more than this factor count as equal."""
FILLED: Final = 0.85
"""Share of a device's memory that units may plan to use."""
Kind = tuple[ModelConfig, str]
Source = Literal["measured here", "in the store", "gpu record", "counted"]
FROZEN, TRAINED = 0.9, 0.05
"""The part that cells have in common: where they share a backbone's passes, and where they share only the batches."""
_START_S: Final = {"cpu": 3.0, "cuda": 60.0}
"""Seconds until a unit trains: process, imports, data, weights, and on a GPU choosing convolutions, with what was
compiled before. Measured with the quickstart, and with ResNet-152 on an H200."""
_LOOKED_AT: Final = 16
"""Trainings of a kind that are read, because a store may hold thousands."""


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
                "allows that, which the hours count; precision=bf16 (other results) needs less"
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
    stage, sizes = units[0].stage.name, [len(unit.trainings) for unit in units]
    cells = f"{max(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    why = "as the sweep sets it"
    if stage in limits:
        common = common_part(units[0])
        why = f"cells of a unit share {100 * common:.0f} % of their work" if common else "all cells read kept features"
        why = f"ends earliest, as {why}"
        why += f"; no more than {most[stage]} fit into memory" if limits[stage] == most.get(stage) else ""
    what = f"{sum(sizes)} training{'s' * (sum(sizes) > 1)} as {len(units)} unit{'s' * (len(units) > 1)} of {cells}"
    return f"{stage}: {what} on {devices}: {why}"


class Speed(NamedTuple):
    """How fast a kind of training is."""

    step_s: float
    """Seconds of a step of one training by itself, with its share of the validation after each epoch."""
    source: Source
    load_s: float = 0.0
    """Seconds of decoding the images of a step, once for all cells of a unit, where that is not in the other number."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of a sweep's trainings."""

    config: SweepConfig
    size: DataSize
    gpu: str = ""
    """Name of the GPUs; empty takes `estimates.DEFAULT`."""
    known: Mapping[Kind, Speed] = field(default_factory=dict)
    """Of kinds that were measured or recorded; others are counted."""

    @property
    def card(self) -> Card | None:
        """What counted speeds rest on; None for a GPU that the table lacks."""
        return card_named(self.gpu or DEFAULT) if self.config.resources.gpus else CORE

    def steps(self, stage: StageConfig) -> int:
        """Steps of a training of a stage."""
        return stage.epochs * num_batches(self.size.captions, stage.batch_size, stage.drop_last)

    def of(self, unit: Unit) -> Speed | None:
        """The speed of a unit's trainings; None where nothing is known of the backbone or the card."""
        if unit.kind in self.known or self.card is None:
            return self.known.get(unit.kind)
        seconds = step_s(self._fitting(unit.trainings[0], self.card), self.size, self.config.resources, self.card)
        return None if seconds is None else Speed(seconds[0], "counted", seconds[1])

    def _fitting(self, training: Training, card: Card) -> Training:
        """A training with the `micro_batch` to which a launch comes on a card that has too little memory."""
        usable_mb = 1000 * FILLED * card.memory * self.config.resources.gpus or float("inf")
        while (memory_mb(Unit(trainings=(training,)), self.config, self.size) or 0.0) > usable_mb:
            if not (chunk := training.stage.smaller_chunk(training.cell.data.format)):
                break
            training = replace(training, stage=replace(training.stage, micro_batch=chunk))
        return training

    def waits(self, unit: Unit) -> str:
        """Say that a device would wait for the images of a unit; empty where it would not, or nobody knows."""
        if (speed := self.of(unit)) is None or speed.load_s <= (work_s := speed.step_s * solo_times(unit)):
            return ""
        return (
            f"{unit.stage.name}: decoding takes {1000 * speed.load_s:.0f} ms a step, training {1000 * work_s:.0f} ms: "
            "goal-sweep data pack, or more resources.loader_workers"
        )

    def seconds(self, unit: Unit) -> float | None:
        """Device seconds of a unit with its start; None as for `of`."""
        if (speed := self.of(unit)) is None:
            return None
        start = _START_S["cuda" if self.config.resources.gpus else "cpu"]
        return start + self.steps(unit.stage) * max(speed.step_s * solo_times(unit), speed.load_s)


def common_part(unit: Unit) -> float:
    """The part of a cell's work that it has in common with its unit."""
    if unit.trainings[0].cell.data.image is None or unit.features:
        return 0.0
    return FROZEN if unit.stage.shares_backbone else TRAINED


def solo_times(unit: Unit) -> float:
    """How long a unit takes, in times of one of its cells by itself."""
    return common_part(unit) + len(unit.trainings) * (1 - common_part(unit))


def in_store(store: Store, statuses: Mapping[Training, TrainingStatus]) -> dict[Kind, Speed]:
    """What the last epochs took of trainings that are done or under way."""
    begun: dict[Kind, list[Training]] = {}
    for one, status in statuses.items():
        if status.state in ("done", "running"):
            begun.setdefault((one.cell.model, one.stage.name), []).append(one)
    found: dict[Kind, Speed] = {}
    for kind, alike in begun.items():
        steps = []
        for one in alike[:_LOOKED_AT]:
            with suppress(OSError, DamagedError, LookupError):  # a speed is no reason to stop
                folder = store.folder(one)
                last, beside = folder.records()[-1]["metrics"], folder.attempts.all()[-1].shared_by
                alone = beside / solo_times(Unit(trainings=(one,) * beside))
                validation = last["time/val_s"] / max(last["time/train_s"], 1e-9)
                steps.append(alone * last["time/step_ms"] / 1000 * (1 + validation))
        if steps:
            found[kind] = Speed(statistics.fmean(steps), "in the store")
    return found


def measured(units: Iterable[Unit], speeds: Speeds, store: Store) -> dict[Kind, Speed]:
    """Train a few steps of the largest unit of each kind on this machine, as a launch would, and keep nothing.

    As many processes do so as this machine trains units at a time, because they share its memory and caches. Raises
    `GoalError` where the data, the weights or the device are not what a unit needs, or a cell fails.
    """
    from goal_sweep.runners.execution.worker import unit_plan  # with torch, which a driver does without

    config, found = speeds.config, dict[Kind, Speed]()
    at_once = to_plan_for(Resources.of(config.resources), None).count
    largest = {unit.kind: unit for unit in sorted(units, key=lambda unit: len(unit.trainings))}
    with ThreadPoolExecutor(at_once) as beside:
        for kind, unit in largest.items():
            plan = unit_plan(unit, store, config.resources, config.execution)
            started = [beside.submit(apart, _measure, plan, config.plugins) for _ in range(at_once)]
            alone = statistics.fmean(one.result() for one in started) / (speeds.steps(unit.stage) * solo_times(unit))
            found[kind] = Speed(alone, "measured here")
    return found


def _measure(plan: UnitPlan, plugins: Iterable[Plugin]) -> float:
    from goal_sweep.goal_core.training.speed import measure_speed

    for plugin in plugins:
        plugin.run()
    return measure_speed(plan, open_dataset(plan.data), steps=12)


def recorded(path: Path, units: Iterable[Unit]) -> dict[Kind, Speed]:
    """The steps in a `gpu.json` of `make gpu`, for units with the backbone, image size, batch and precision of one.

    Raises `GoalError` where the file cannot be read, or is no such record.
    """
    try:
        steps = json.loads(path.read_text(encoding="utf-8"))["steps"].values()
        tables = [table for step in steps for table in step.get("tables", {}).items()]
        rows = {(title, name): row for title, own in tables for name, row in own.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise GoalError(f"{path} is no gpu.json of make gpu: {error!r}") from error
    if not rows:
        raise GoalError(f"{path} is no gpu.json of make gpu with a step that has figures")
    found = dict[Kind, Speed]()
    for unit in units:
        first, image, trains = unit.trainings[0], unit.trainings[0].cell.data.image, unit.stage.trains_backbone
        model = f"{backbone_name(first.cell.model)} at {image.size if image else 0} px"
        title = f"{model}, batch {unit.stage.batch_size}, {first.precision}, images from pack"
        if times := rows.get((title, "compiled" if trains else "heads-compiled")):
            step_s = times["ms a step"] / 1000
            of_row = Unit(trainings=unit.trainings[:1] * round(times["cell steps/s"] * step_s))
            found[unit.kind] = Speed(step_s / solo_times(of_row), "gpu record")
    return found
