"""Which units a launch can start: all of them for a round, then those that follow a unit that has ended.

There is no barrier between stages. A training can start when the one before it is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import LaunchPlan
from goal_sweep.runners.launch.tuning import foresee
from goal_sweep.runners.launch.view.progress import Pace
from goal_sweep.runners.planning.devices import Devices
from goal_sweep.runners.planning.estimate import fit
from goal_sweep.runners.planning.prices import Prices
from goal_sweep.sweeps import Training, Unit, pack, pack_chain


class UnitQueue:
    """Packs what can start into units, and knows which trainings are under way.

    Args:
        sweep: the sweep.
        plan: what to train.
        launch_id: the id that claims the attempts of this launch.
        note: shows a line to the user.
        refused: called with a training whose folder cannot be moved, and the error.
    """

    def __init__(
        self,
        sweep: OpenedSweep,
        plan: LaunchPlan,
        launch_id: str,
        note: Callable[[str], None],
        refused: Callable[[Training, Exception], None],
    ) -> None:
        self._sweep, self._plan, self._launch_id = sweep, plan, launch_id
        self._note, self._refused = note, refused
        self._number = {stage.name: number for number, stage in enumerate(sweep.config.stages)}
        self._of_cell: dict[str, list[Training]] = {}
        for training in sweep.trainings:
            self._of_cell.setdefault(training.cell.id, []).append(training)
        self._auto: Mapping[str, int] = {}
        """The number of cells in a unit that was chosen for each stage where the user leaves it to us."""
        self._prices: Prices | None = None
        self._made: set[str] = set()
        """The cached features that units of this launch compute."""
        self._attempts: dict[Training, int] = {}
        """The trainings whose units wait or run, with the number of attempts before."""

    def fit_to(self, devices: Devices, prices: Prices) -> None:
        """Choose how many cells a unit gets, and tell the user why.

        Without this, as many cells share a unit as can.

        Args:
            devices: the devices of this launch.
            prices: what units cost.
        """
        if not (todo := self._plan.startable(self._sweep.trainings, ahead=True)):
            return
        packing = fit(todo, prices, devices)
        self._prices, self._auto = packing.prices, packing.limits
        for line in (*packing.lines, *filter(None, [devices.cpus])):
            self._note(line)
        prices, priced = packing.prices, all(packing.prices.seconds(unit) for unit in packing.units)

        def epoch_s(unit: Unit) -> float:
            seconds = prices.seconds(unit) if priced else None
            return (prices.time_shape(unit) if seconds is None else seconds) / unit.trainings[0].epochs

        parts = [packing, *(fit(part, prices, devices) for part in self._later())]
        lanes = max(part.lanes for part in parts)
        self._plan.progress.pace = Pace([part.units for part in parts], lanes, epoch_s, priced)

    def _later(self) -> Iterator[list[Training]]:
        """What follows these trainings while the sweep searches: further candidates, then what reports."""
        if not self._sweep.is_searching:
            return
        coming, known = foresee(self._sweep, self._sweep.ends), self._plan.progress
        for part in coming.rounds:
            if new := [one for one in part if one not in known]:
                yield new
        if left := [one for one in coming.grid if one not in known or known.epochs_left(one)]:
            yield left

    @property
    def under_way(self) -> list[Training]:
        """The trainings whose units wait or run."""
        return list(self._attempts)

    def take_back(self, training: Training) -> bool:
        """Note that a training's unit has ended. Returns whether a worker has tried the training."""
        return self._num_attempts(training) > self._attempts.pop(training)

    def round(self) -> list[UnitJob]:
        """Everything that can start now, for the first round and for what is left after one."""
        if not (chosen := self._ready(self._sweep.trainings)):
            return []
        self._announce(chosen)
        return self._jobs(chosen)

    def after(self, unit: Unit, damaged: Collection[Training]) -> list[UnitJob]:
        """What can start because a unit has ended: the next stage of its cells, and what is tried again.

        The weights that a training wrote a moment ago are not read here: its worker checks them when it reads them.

        Args:
            unit: the unit.
            damaged: trainings of which a worker found a file damaged; the weights that they start from are read.
        """
        cells = dict.fromkeys(training.cell.id for training in unit.trainings)
        near = [training for cell in cells for training in self._of_cell[cell]]
        return self._jobs(self._ready(near, damaged))

    def _ready(self, trainings: Sequence[Training], doubted: Collection[Training] | None = None) -> list[Training]:
        """Those that can start. Lost weights and states from which the doubted start, or all, are trained again."""
        chosen = self._startable(trainings)
        read = [one for one in chosen if doubted is None or one in doubted]
        if lost := self._plan.set_aside_damaged(read, self._refused):
            self._note(f"the weights or states of {len(lost)} finished trainings are lost; they are trained again")
            chosen = self._startable(trainings)
        return chosen

    def _startable(self, trainings: Sequence[Training]) -> list[Training]:
        return [one for one in self._plan.startable(trainings, ahead=False) if one not in self._attempts]

    def _stages(self, trainings: Sequence[Training]) -> list[list[Training]]:
        """The trainings of each stage that has any, in the order of the stages."""
        stages = ([one for one in trainings if one.stage.name == name] for name in self._number)
        return [stage for stage in stages if stage]

    def _jobs(self, chosen: Sequence[Training]) -> list[UnitJob]:
        execution, jobs = self._sweep.config.execution, []
        units = [unit for stage in self._stages(chosen) for unit in pack(stage, execution, self._auto)]
        for unit, rank in zip(units, self._ranks(units), strict=True):
            jobs.append(self._sweep.job(unit, self._launch_id, self._plan.forgiven, rank=rank))
            self._attempts |= {training: self._num_attempts(training) for training in unit.trainings}
        return jobs

    def _ranks(self, units: Sequence[Unit]) -> list[tuple[int, float]]:
        """The order in which units start, the lowest first: earlier stages, and of these the longest units.

        Before all others of its stage comes one that computes cached features, so that the others find them there.
        """
        stages = [self._number[unit.stage.name] for unit in units]
        if self._prices is None:
            return [(2 * stage, float(place)) for place, stage in enumerate(stages)]
        ranks: dict[int, tuple[int, float]] = {}
        lengths = [self._prices.seconds(unit) or self._prices.time_shape(unit) for unit in units]
        for place in sorted(range(len(units)), key=lambda place: -lengths[place]):
            features = units[place].features
            is_first = bool(features) and features not in self._made
            self._made.add(features)
            ranks[place] = (2 * stages[place] + (not is_first), -lengths[place])
        return [ranks[place] for place in range(len(units))]

    def _num_attempts(self, training: Training) -> int:
        try:
            return len(self._sweep.store.folder(training).attempts.numbers())
        except OSError:
            return 0

    def _announce(self, chosen: Collection[Training]) -> None:
        """Say what a round will train: what can start now, and what follows it."""
        ahead, now = self._plan.startable(self._sweep.trainings, ahead=True), set(chosen)
        follows = [one for one in ahead if one in now or one.before in now]
        units = Counter(unit.stage.name for unit in pack_chain(follows, self._sweep.config.execution, self._auto))
        for stage in self._stages(follows):
            name, whole = stage[0].stage.name, self._sweep.by_stage[self._number[stage[0].stage.name]]
            self._note(f"{name}: {len(stage)} of {len(whole)} cells to train in {units[name]} units")
