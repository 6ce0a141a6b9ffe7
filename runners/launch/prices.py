"""What a unit costs, from the best that is known of its stage: finished trainings, measured steps, or the calibration.

The calibration also tells how the price grows with the number of cells. Where it lacks a backbone, the share that the
cells have in common is assumed, which is enough to compare packings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from goal_core.models.config import ModelConfig
from runners.launch.calibration import DEVICES
from runners.launch.memory import unit_memory_mb
from runners.launch.price import DataSize, backbone_speed, feature_seconds, unit_seconds
from sweeps import SweepConfig, Training, Unit

Basis = Literal["finished", "measured", "calibration", "assumed"]
"""What a number rests on: the stage's finished trainings, a few steps trained here, `calibration`, or an assumption."""
COMMON: Final = {"frozen": 0.9, "finetune": 0.05}
"""Share of a solo cell's work that the cells of a unit have in common, where nothing is known of the backbone."""
START_S: Final[Mapping[str, float]] = {"cpu": 3.0, "cuda": 20.0}
"""Seconds until a unit trains: its process, its imports, its data and weights. For a CPU measured with the quickstart,
whose processes are reused; for a GPU assumed."""


FILLED: Final = 0.85
"""Share of a device's memory that units may plan to use."""


class Memory(NamedTuple):
    """Peak memory of a unit."""

    mb: float
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The price of units of one kind, measured. A unit of k cells takes `common_s + k * own_s` device seconds."""

    common_s: float
    own_s: float
    once_s: float = 0.0
    """Seconds of what only the first unit does, such as computing a backbone's features."""
    memory_mb: tuple[float, float] | None = None
    """Peak memory in megabytes: what all cells share, and each cell's own. None where it cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of the units of a sweep."""

    config: SweepConfig
    size: DataSize
    scale: Mapping[str, float] = field(default_factory=dict)
    """What finished trainings of a stage took, divided by their calibrated price, by the stage's name."""
    measured: Mapping[tuple[ModelConfig, str], Measured] = field(default_factory=dict)
    """By model and stage."""

    def start_s(self, unit: Unit) -> float:
        """Seconds from a unit's start until it trains; none beside an assumed price, which is not in seconds."""
        return 0.0 if self.basis(unit) == "assumed" else START_S["cuda" if self.config.resources.gpus else "cpu"]

    def seconds(self, unit: Unit) -> float:
        """Device seconds of a unit, without its start and without what only the first unit of a model does."""
        if (found := self._measured(unit)) is not None:
            return found.common_s + len(unit.trainings) * found.own_s
        return self.shape(unit) * self.scale.get(unit.stage.name, 1.0)

    def once_s(self, unit: Unit) -> float:
        """Device seconds of what only the first unit of a model does."""
        if (found := self._measured(unit)) is not None:
            return found.once_s
        if unit.stage.name in self.scale:
            return 0.0  # the finished trainings have paid it, and their price contains it
        return feature_seconds(unit, self.config, self.size) or 0.0

    def basis(self, unit: Unit) -> Basis:
        """What a unit's price rests on."""
        if self._measured(unit) is not None:
            return "measured"
        if unit.stage.name in self.scale:
            return "finished"
        return "assumed" if backbone_speed(unit.trainings[0].cell.model) is None else "calibration"

    def shape(self, unit: Unit) -> float:
        """The calibrated device seconds of a unit; without a calibration, in units of a solo cell's epoch."""
        seconds = unit_seconds(unit, self.config, self.size)
        if seconds is not None:
            return seconds
        common = COMMON[unit.stage.name] if unit.stage.shares_backbone or unit.stage.trains_backbone else 0.0
        passes = DEVICES["cuda"].train_factor if unit.stage.trains_backbone else 1.0
        return unit.stage.epochs * passes * (common + len(unit.trainings) * (1 - common))

    def total_s(self, units: Iterable[Unit]) -> float:
        """Device seconds of units, one after the other."""
        seconds, made = 0.0, set()
        for unit in units:
            first = unit.trainings[0].cell
            seconds += self.seconds(unit) + (0.0 if (first.model, first.seed) in made else self.once_s(unit))
            made.add((first.model, first.seed))
        return seconds

    def memory(self, unit: Unit) -> Memory | None:
        """Peak memory of a unit on its device; None where neither a measurement nor the calibration tells."""
        count, found = len(unit.trainings), self._measured(unit)
        if found is not None and found.memory_mb is not None:
            common, own = found.memory_mb
            return Memory(common + count * own, "measured")
        counted = unit_memory_mb(unit, self.config, self.size)
        return None if counted is None else Memory(counted, "calibration")

    def most_cells(self, stage: str, trainings: Sequence[Training], memory_mb: float | None) -> int | None:
        """The largest number of a stage's cells whose unit fits into a device's memory; None where that is not known.

        Args:
            stage: the name of the stage.
            trainings: trainings of it, and others.
            memory_mb: of the device; None if it is not known.
        """
        of_stage = [one for one in trainings if one.stage.name == stage]
        most: int | None = None
        for training in {one.cell.model: one for one in of_stage}.values():
            one, two = (self.memory(Unit(trainings=(training,) * count)) for count in (1, 2))
            if memory_mb is None or one is None or two is None:
                return None
            own = max(two.mb - one.mb, 1e-9)
            fits = max(1, 1 + int((FILLED * memory_mb - one.mb) / own))
            most = fits if most is None else min(most, fits)
        return most

    def _measured(self, unit: Unit) -> Measured | None:
        return self.measured.get((unit.trainings[0].cell.model, unit.stage.name))
