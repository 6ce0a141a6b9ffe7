"""Packs what can start into units, and orders them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.launch.remaining import Remaining
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.packing import pack_for
from goal_sweep.runners.planning.speeds import Speeds, in_store
from goal_sweep.sweeps.cells import Training
from goal_sweep.sweeps.units import Unit, pack


class Packer:
    """Packs what can start into units."""

    def __init__(self, remaining: Remaining, devices: Devices, note: Callable[[str], None]) -> None:
        self._remaining, self._devices, self._note = remaining, devices, note
        self._limits: Mapping[str, int] = {}
        self._seconds: Callable[[Unit], float | None] = lambda unit: None
        self._made: set[str] = set()
        """The cached features that units of this launch compute."""

    def look_ahead(self) -> None:
        """Choose how many cells a unit gets, for all that can be trained now or after it, and say so."""
        remaining, sweep = self._remaining, self._remaining.sweep
        if not (todo := remaining.startable(ahead=True)):
            return
        size, known = DataSize.of_dataset(sweep.dataset), in_store(sweep.store, sweep.statuses())
        packing = pack_for(todo, self._devices, Speeds(sweep.config, size, self._devices.gpu, known))
        self._limits, self._seconds = packing.limits, packing.seconds
        for line in (*packing.lines, *self._devices.notes):
            self._note(line)
        units = Counter(unit.stage.name for unit in packing.units)
        cells = Counter(training.stage.name for training in todo)
        for stage in sweep.by_stage:
            if stage and cells[name := stage[0].stage.name]:
                self._note(f"{name}: {cells[name]} of {len(stage)} cells to train in {units[name]} units")

    def units(self, chosen: Sequence[Training]) -> list[tuple[tuple[float, ...], Unit]]:
        """Units of trainings that can start now, each with its rank: those of a lower rank start first.

        Earlier stages come first, and of these the longest units. Before all others of its stage comes one that
        computes cached features, so that the others find them there.
        """
        config = self._remaining.sweep.config
        stages = {stage.name: float(number) for number, stage in enumerate(config.stages)}
        lengths = {
            unit: self._seconds(unit) or len(unit.trainings) for unit in pack(chosen, config.execution, self._limits)
        }
        ranked: list[tuple[tuple[float, ...], Unit]] = []
        for unit in sorted(lengths, key=lambda unit: -lengths[unit]):
            is_first = bool(unit.features) and unit.features not in self._made
            self._made.add(unit.features)
            ranked.append(((stages[unit.stage.name], 0.0 if is_first else 1.0, -lengths[unit]), unit))
        return ranked
