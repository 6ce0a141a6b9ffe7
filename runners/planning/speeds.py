"""How long units take: steps x seconds of a step, which are measured, recorded or counted.

The cells of a unit have a part c of their work in common, so a unit of k cells takes as long as c + k (1 - c) cells by
themselves. The parts are constants, so that a plan and a launch choose alike, whatever has been measured.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.data.dataset import Dataset, num_batches
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.sizes import DataSize, backbone_name
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.planning.devices import to_plan_for
from goal_sweep.runners.planning.estimates import CORE, DEFAULT, Card, card_named, step_s
from goal_sweep.runners.planning.processes import process_pool
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.sweeps import SweepConfig, Training, Unit

if TYPE_CHECKING:
    from goal_sweep.goal_core.training import UnitPlan
    from goal_sweep.goal_core.training.speed import UnitSpeed

Kind = tuple[ModelConfig, str]
Source = Literal["measured here", "in the store", "gpu record", "by roofline"]
FROZEN, TRAINED = 0.9, 0.05
"""The part that cells have in common: where they share a backbone's passes, and where they share only the batches."""
_START_S: Final = {"cpu": 3.0, "cuda": 20.0}
"""Seconds until a unit trains: process, imports, data, weights. Of a CPU measured with the quickstart, else assumed."""
_LOOKED_AT: Final = 16
"""Trainings of a kind that are read, because a store may hold thousands."""


class Speed(NamedTuple):
    """How fast a kind of training is."""

    step_s: float
    """Seconds of a step of one training by itself, with its share of the validation after each epoch."""
    source: Source


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of a sweep's trainings."""

    config: SweepConfig
    size: DataSize
    gpu: str = ""
    """Name of the GPUs; empty takes `roofline.DEFAULT`."""
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
        seconds = step_s(unit.trainings[0], self.size, self.config.resources, self.card)
        return None if seconds is None else Speed(seconds, "by roofline")

    def seconds(self, unit: Unit) -> float | None:
        """Device seconds of a unit with its start; None as for `of`."""
        if (speed := self.of(unit)) is None:
            return None
        start = _START_S["cuda" if self.config.resources.gpus else "cpu"]
        return start + self.steps(unit.stage) * speed.step_s * solo_times(unit)


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


def measured(units: Iterable[Unit], speeds: Speeds, store: Store, dataset: Dataset) -> dict[Kind, Speed]:
    """Train a few steps of the largest unit of each kind on this machine, as a launch would, and keep nothing.

    As many processes do so as this machine trains units at a time, because they share its memory and caches. Raises
    `GoalError` where the data, the weights or the device are not what a unit needs, or a cell fails.
    """
    from goal_sweep.runners.execution.worker import unit_plan  # with torch, which a driver does without

    config, found = speeds.config, dict[Kind, Speed]()
    at_once = to_plan_for(Resources.of(config.resources), None).count
    largest = {unit.kind: unit for unit in sorted(units, key=lambda unit: len(unit.trainings))}
    with process_pool(at_once, tasks_each=1) as processes:
        for kind, unit in largest.items():
            plan = replace(unit_plan(unit, store, config.resources, config.execution.sharing), plugins=config.plugins)
            started = [processes.submit(_measure, plan) for _ in range(at_once)]
            seconds = [one.result().unit_s(unit.stage, unit.stage.epochs, dataset) for one in started]
            alone = statistics.fmean(seconds) / (speeds.steps(unit.stage) * solo_times(unit))
            found[kind] = Speed(alone, "measured here")
    return found


def _measure(plan: UnitPlan) -> UnitSpeed:
    from goal_sweep.goal_core.training.speed import measure_speed

    return measure_speed(plan, open_dataset(plan.data), steps=12)


def recorded(path: Path, units: Iterable[Unit]) -> dict[Kind, Speed]:
    """The steps in a `gpu.json` of `make gpu`, for units with the backbone, image size, batch and precision of one.

    Raises `GoalError` where the file cannot be read, or is no such record.
    """
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))["steps"]["flagship"]["tables"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise GoalError(f"{path} is no gpu.json of make gpu with the step `flagship`: {error!r}") from error
    found = dict[Kind, Speed]()
    for unit in units:
        first, image = unit.trainings[0], unit.trainings[0].cell.data.image
        model = f"{backbone_name(first.cell.model)} at {image.size if image else 0} px"
        title = f"{model}, batch {unit.stage.batch_size}, {first.precision}, images from files"
        if row := tables.get(title, {}).get("finetune" if unit.stage.trains_backbone else "one"):
            found[unit.kind] = Speed(row["ms a step"] / 1000, "gpu record")
    return found
