"""Pack trainings into units. Ray Tune schedules each unit as one trial."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING, StageConfig
from goal_sweep.sweeps.cells import Training
from goal_sweep.sweeps.schema import ExecutionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Trainings of one stage that run together on one device.

    They differ only in their objective, and in settings of the stage that leave the batches alone (`OF_ONE_TRAINING`).
    """

    trainings: tuple[Training, ...]

    @property
    def stage(self) -> StageConfig:
        """The stage's settings, of the first training; the others may differ in `OF_ONE_TRAINING`."""
        return self.trainings[0].stage

    @property
    def kind(self) -> tuple[ModelConfig, str]:
        """The model, and the name of the stage."""
        return self.trainings[0].cell.model, self.stage.name

    @property
    def features(self) -> str:
        """What the features of its backbone depend on that are computed once, the same in every epoch; empty: none."""
        cell = self.trainings[0].cell
        image, backbone = cell.data.image, cell.model.backbone
        if not self.stage.shares_backbone or image is None or image.augments:
            return ""
        seed = f" seed {cell.seed}" if backbone.weights == "random" else ""
        return f"{backbone.name} {backbone.weights} {cell.model.init_from}{seed}"

    @property
    def label(self) -> str:
        """The training's name; for several trainings, `resnet152 seed 1 (frozen), 8 objectives`, or `8 cells`."""
        first, count = self.trainings[0], len(self.trainings)
        if count == 1:
            return first.name
        what = "objectives" if len({training.cell.objective.name for training in self.trainings}) == count else "cells"
        return f"{first.cell.model.backbone.name} seed {first.cell.seed} ({self.stage.name}), {count} {what}"


def pack(
    trainings: Iterable[Training], execution: ExecutionConfig, auto: Mapping[str, int] | None = None
) -> list[Unit]:
    """Pack trainings, any subset of a sweep's, into units in the order of their first trainings.

    Unless `sharing` is `none`, trainings of a stage that differ only in their objective, or in settings that leave the
    batches alone, share as few units as `cells_per_unit` allows, of sizes that differ by at most one: 15 cells with a
    limit of 8 give 8 + 7. Where the limit is `auto`, `auto` has that of each stage by its name; others have none.
    """
    groups: dict[Hashable, list[Training]] = {}
    for training in trainings:
        groups.setdefault(training.key if execution.sharing == "none" else _alike(training), []).append(training)
    units = []
    for group in groups.values():
        limit = execution.cells_per_unit
        limit = (auto or {}).get(group[0].stage.name, 0) if limit == "auto" else limit
        parts = -(-len(group) // limit) if limit else 1
        for numbers in np.array_split(range(len(group)), parts):  # of sizes that differ by at most one
            units.append(Unit(trainings=tuple(group[number] for number in numbers)))
    return units


def pack_chain(
    trainings: Iterable[Training], execution: ExecutionConfig, auto: Mapping[str, int] | None = None
) -> list[Unit]:
    """As `pack`, for trainings of several stages: what follows a unit is packed when the unit has ended."""
    left = dict.fromkeys(trainings)
    later: dict[Training | None, list[Training]] = {}
    for training in left:
        later.setdefault(training.before if training.before in left else None, []).append(training)
    units = pack(later.get(None, ()), execution, auto)
    for unit in units:  # which grow meanwhile
        units += pack([after for training in unit.trainings for after in later.get(training, ())], execution, auto)
    return units


def _alike(training: Training) -> Hashable:
    """What trainings that share a unit have in common: all but the objective and settings in `OF_ONE_TRAINING`."""
    cell = training.cell
    return cell.data, cell.model, cell.seed, cell.tested, tuple(map(_shared, training.stages)), training.precision


@cache
def _shared(stage: StageConfig) -> Hashable:
    return tuple(getattr(stage, item.name) for item in fields(stage) if item.name not in OF_ONE_TRAINING)
