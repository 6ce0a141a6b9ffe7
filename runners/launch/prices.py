"""What a unit costs, from the best that is known of its model in its stage: what finished, measurement, or calibration.

The calibration also tells how the price grows with the number of cells. Where it lacks a backbone, the share that the
cells have in common is assumed, which is enough to compare packings and tells no time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from goal_core.models.config import ModelConfig
from runners.launch.calibration import DEVICES
from runners.launch.memory import BASE_MB, unit_memory_mb
from runners.launch.price import DataSize, backbone_speed, feature_seconds, features_of, unit_busy, unit_seconds
from sweeps import SweepConfig, Training, Unit

Basis = Literal["finished", "measured", "calibration", "assumed"]
"""What a number rests on, the best first: finished trainings of the model in the stage, a few steps trained here,
`calibration`, or an assumption."""
Kind = tuple[ModelConfig, str]
"""What units with a price in common have in common: the model, and the name of the stage."""
COMMON: Final = {"frozen": 0.9, "finetune": 0.05}
"""Share of a solo cell's work that the cells of a unit have in common, where nothing is known of the backbone."""
START_S: Final[Mapping[str, float]] = {"cpu": 3.0, "cuda": 20.0}
"""Seconds until a unit trains: its process, its imports, its data and weights. For a CPU measured with the quickstart,
whose processes are reused; for a GPU assumed."""


FILLED: Final = 0.85
"""Share of a device's memory that units may plan to use."""
COUNTED_TWICE: Final = 2.0
"""Factor of a memory that was only counted, where several units are to fit together. No GPU has confirmed the count."""


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
    scale: Mapping[Kind, float] = field(default_factory=dict)
    """What finished trainings took, divided by their price without them (`shape`)."""
    measured: Mapping[Kind, Measured] = field(default_factory=dict)
    peaks: Mapping[Kind, Sequence[tuple[float, int]]] = field(default_factory=dict)
    """Most memory of a GPU in megabytes that units of finished trainings reserved, each with its number of cells."""
    kept: Mapping[Kind, tuple[float, float]] = field(default_factory=dict)
    """Memory as of `Measured.memory_mb`, measured on this machine by an earlier command."""
    decoded: bool = False
    """Whether the images may be decoded already, or are on the GPU."""
    epoch_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that stand for a solo cell's assumed epoch, by stage; empty where no price is known in seconds."""

    def with_assumed(self, trainings: Iterable[Training]) -> Prices:
        """Let a solo cell without a price take as long as those of its stage that have one do on average.

        Where no cell of its stage has one, those of other stages count by their epochs. Packings of a sweep can then be
        compared although some of its backbones have no price. Their times mean nothing.

        Args:
            trainings: those to compare; one of each kind at least.
        """
        kinds = {(one.cell.model, one.stage.name): Unit(trainings=(one,)) for one in trainings}
        known: dict[str, list[float]] = {}
        for unit in kinds.values():
            if self.basis(unit) != "assumed":
                known.setdefault(unit.stage.name, []).append(self.seconds(unit) / _solo_epochs(unit))
        everywhere = [seconds for of_stage in known.values() for seconds in of_stage]
        if len(everywhere) in (0, len(kinds)):
            return self
        stages = {stage for _, stage in kinds}
        return replace(self, epoch_s={stage: statistics.fmean(known.get(stage, everywhere)) for stage in stages})

    def start_s(self, unit: Unit) -> float:
        """Seconds from a unit's start until it trains; none beside a price that is not in seconds."""
        if not self.epoch_s and self.basis(unit) == "assumed":
            return 0.0
        return START_S["cuda" if self.config.resources.gpus else "cpu"]

    def seconds(self, unit: Unit) -> float:
        """Device seconds of a unit, without its start and without `once_s`."""
        if (found := self._measured(unit)) is not None:
            part = unit.trainings[0].num_epochs / unit.stage.epochs
            return part * (found.common_s + len(unit.trainings) * found.own_s)
        assumed = self.epoch_s.get(unit.stage.name, 1.0)
        return self.shape(unit) * self.scale.get(_kind(unit), assumed if self.basis(unit) == "assumed" else 1.0)

    def once_s(self, unit: Unit) -> float:
        """Device seconds of what only the first unit with the same `features_of` does."""
        if (found := self._measured(unit)) is not None:
            return found.once_s
        if _kind(unit) in self.scale:
            return 0.0  # the finished trainings have paid it, and their price contains it
        return feature_seconds(unit, self.config, self.size) or 0.0

    def basis(self, unit: Unit) -> Basis:
        """What a unit's price rests on."""
        if self._measured(unit) is not None:
            return "measured"
        if _kind(unit) in self.scale:
            return "finished"
        return "assumed" if backbone_speed(unit.trainings[0].cell.model) is None else "calibration"

    def shape(self, unit: Unit) -> float:
        """The calibrated device seconds of a unit; without a calibration, in units of a solo cell's epoch."""
        seconds = unit_seconds(unit, self.config, self.size)
        if seconds is not None:
            return seconds
        common = COMMON[unit.stage.name] if unit.stage.shares_backbone or unit.stage.trains_backbone else 0.0
        return _solo_epochs(unit) * (common + len(unit.trainings) * (1 - common))

    def total_s(self, units: Iterable[Unit]) -> float:
        """Device seconds of units, one after the other."""
        seconds, made = 0.0, dict[str, float]()
        for unit in units:
            seconds += self.seconds(unit)
            if once_s := self.once_s(unit):
                made.setdefault(features_of(unit), once_s)
        return seconds + sum(made.values())

    def memory(self, unit: Unit) -> Memory | None:
        """Peak memory of a unit on its device; None where neither a measurement nor the calibration tells."""
        count, found = len(unit.trainings), self._measured(unit)
        if found is not None and found.memory_mb is not None:
            common, own = found.memory_mb
            return Memory(common + count * own, "measured")
        counted = unit_memory_mb(unit, self.config, self.size)
        return None if counted is None else Memory(counted, "calibration")

    def beside_others(self, unit: Unit) -> Memory | None:
        """Memory that a unit needs of a GPU that it shares, on the safe side; None where nothing tells.

        A unit with more cells than one that has finished counts as if all of its memory grew with the cells.
        """
        count, outside = len(unit.trainings), BASE_MB["cuda"]
        if peaks := self.peaks.get(_kind(unit)):
            return Memory(max(mb * max(1.0, count / side) for mb, side in peaks) + outside, "finished")
        found = self.memory(unit)
        if (found is None or found.basis != "measured") and _kind(unit) in self.kept:
            common, own = self.kept[_kind(unit)]
            found = Memory(common + count * own, "measured")
        if found is None or found.basis == "measured":
            return found and Memory(found.mb + outside, "measured")
        return Memory(COUNTED_TWICE * found.mb, found.basis)

    def busy(self, unit: Unit) -> float | None:
        """Share of its time in which a unit keeps its GPU busy, 0 to 1; None where it is not known.

        It comes from the calibration. A unit that takes less time than calibrated may have left out only what the GPU
        waits for, such as the decoding of images.
        """
        calibrated = unit_busy(unit, self.config, self.size, decoded=self.decoded)
        return None if calibrated is None else min(1.0, calibrated * max(1.0, self.shape(unit) / self.seconds(unit)))

    def most_cells(self, stage: str, trainings: Sequence[Training], memory_mb: float | None) -> int | None:
        """The largest number of a stage's cells whose unit fits into a device's memory; None where that is not known.

        Models whose memory is not known are left out.

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
                continue
            own = max(two.mb - one.mb, 1e-9)
            fits = max(1, 1 + int((FILLED * memory_mb - one.mb) / own))
            most = fits if most is None else min(most, fits)
        return most

    def _measured(self, unit: Unit) -> Measured | None:
        return self.measured.get(_kind(unit))


def _kind(unit: Unit) -> Kind:
    return unit.trainings[0].cell.model, unit.stage.name


def _solo_epochs(unit: Unit) -> float:
    """The assumed work of one cell by itself, in epochs of a cell whose backbone is frozen."""
    return unit.trainings[0].num_epochs * (DEVICES["cuda"].train_factor if unit.stage.trains_backbone else 1.0)
