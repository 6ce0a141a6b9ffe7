"""The progress of a sweep: the state of its trainings, by block and by objective, and the time left.

No drawing, no writing.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runners.store import State, TrainingStatus
from sweeps import Block, Training, Unit, content_id

Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")


@dataclass(slots=True)
class Standing:
    """The state of one training."""

    training: Training
    state: State = "waiting"
    epoch: int = 0
    """Epochs done, those included that it continues; of one that waits, those whose state is saved."""
    val_rsum: float = math.nan
    """val/rsum of the last epoch; NaN before the first."""
    best_rsum: float = math.nan
    """Highest val/rsum of an epoch so far, which selects the weights; NaN before the first."""
    test: Mapping[str, float] = field(default_factory=dict)
    """Final metrics; empty until the training is done."""
    reason: str = ""
    """Why it failed, or what is damaged."""
    damaged: bool = False
    """Whether it has a result whose files are damaged, so that it must be trained again."""
    imported: str = ""
    """The archive that the result came from; empty if it was trained here."""

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""
        return self.training.epochs

    @property
    def left(self) -> int:
        """Epochs still to do: none once it is done or has failed."""
        return self.epochs - self.epoch if self.state in ("waiting", "running") else 0

    @property
    def begun(self) -> bool:
        """Whether it waits with epochs saved, from which it continues."""
        return self.state == "waiting" and self.epoch > 0


class TimeLeft(NamedTuple):
    """What is left of a launch."""

    seconds: float
    priced: bool
    """Whether it rests, in part at least, on the price and not on the speed of this launch."""


@dataclass(slots=True)
class _Run:
    """A unit that trains."""

    unit: Unit
    since: float
    """When its last epoch ended, or when it began."""
    epoch: int
    """Epochs done."""
    is_first: bool = True
    """Whether it has not ended an epoch since it began. The first one also holds the start of its process."""


@dataclass(slots=True)
class Pace:
    """The speed of one launch, and the time left at that speed.

    The units that wait are given in their order to the device that is free first, none before the units of its cells
    that come before it. A unit whose kind has not shown its speed takes what it was priced at, corrected by how wrong
    the prices of the others were. Between two epochs the time left runs down by itself.
    """

    units: Sequence[Unit] = ()
    """The units of the launch."""
    lanes: int = 1
    """Units that train at the same time."""
    epoch_s: Callable[[Unit], float] = lambda unit: float(len(unit.trainings))
    """What an epoch of a unit is expected to take: seconds if `priced`, else a measure that compares units."""
    priced: bool = False
    _runs: dict[Training, _Run] = field(default_factory=dict)
    _ratios: dict[object, tuple[bool, float, int]] = field(default_factory=dict)
    """By kind of unit, and of all together under None: what epochs took divided by what was expected, the mean of so
    many. Those of first epochs count, as the flag says, until there are others."""
    _answer: tuple[float, TimeLeft] | None = None
    """When the time left was last computed, and what it was."""

    def begin(self, unit: Unit, epoch: int) -> None:
        """Note that a worker has begun a unit, whose cells have done so many epochs."""
        self._runs |= dict.fromkeys(unit.trainings, _Run(unit, time.monotonic(), epoch))
        self.lanes = max(self.lanes, len({id(run) for run in self._runs.values()}))

    @property
    def has_units(self) -> bool:
        """Whether a unit trains."""
        return bool(self._runs)

    def end(self, unit: Unit) -> None:
        """Note that a unit's worker has ended."""
        for training in unit.trainings:
            self._runs.pop(training, None)

    def epoch_done(self, training: Training, epoch: int) -> None:
        """Note that a cell finished an epoch. The cells of a unit report it together."""
        run = self._runs.get(training)
        if run is None or epoch <= run.epoch:
            return
        now = time.monotonic()
        ratio = (now - run.since) / (epoch - run.epoch) / self.epoch_s(run.unit)
        for kind in (run.unit.kind, None):
            first, mean, count = self._ratios.get(kind, (True, 0.0, 0))
            if first and not run.is_first:
                first, mean, count = False, 0.0, 0
            if first == run.is_first:
                self._ratios[kind] = first, (mean * count + ratio) / (count + 1), count + 1
        run.since, run.epoch, run.is_first = now, epoch, False

    def left(self, standings: Mapping[Training, Standing]) -> TimeLeft | None:
        """What is left, computed once a second, because a large sweep has thousands of units.

        Args:
            standings: the state of every training.

        Returns:
            None without a price and before the first epoch.
        """
        now = time.monotonic()
        if self.units and (self.priced or self._ratios) and (self._answer is None or now >= self._answer[0] + 1.0):
            self._answer = now, self._left(standings, now)
        return self._answer and self._answer[1]

    def _left(self, standings: Mapping[Training, Standing], now: float) -> TimeLeft:
        free, ends, unmeasured = [0.0] * self.lanes, defaultdict[str, float](float), False
        runs = [
            (next((self._runs[one] for one in unit.trainings if one in self._runs), None), unit) for unit in self.units
        ]
        for run, unit in sorted(runs, key=lambda pair: pair[0] is None):  # those that train have their device
            if epochs := max(standings[one].left for one in unit.trainings):
                known = self._ratios.get(unit.kind)
                ratio = (known or self._ratios.get(None) or (False, 1.0, 0))[1]
                taken, unmeasured = now - run.since if run else 0.0, unmeasured or known is None
                cells = [training.cell.id for training in unit.trainings]
                start = max(heapq.heappop(free), *(ends[cell] for cell in cells))
                end = start + epochs * max(taken, self.epoch_s(unit) * ratio) - taken
                heapq.heappush(free, end)
                ends |= dict.fromkeys(cells, end)
        return TimeLeft(max(free), priced=self.priced and unmeasured)


class SweepProgress:
    """The state of every training of one sweep.

    Args:
        trainings: all trainings, in the sweep's order.
        statuses: what the store says of them; those that are missing wait.
    """

    def __init__(
        self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus] | None = None
    ) -> None:
        self._standings = {training: Standing(training) for training in trainings}
        self._blocks: dict[Block, dict[Objective, list[Training]]] = {block: {} for block in _in_order(trainings)}
        self._later: dict[Training, list[Training]] = {}
        """The trainings that start from each training's weights."""
        for training in trainings:
            objective = training.cell.objective.pair, training.cell.objective.triplet
            for block in training.blocks:
                self._blocks[block].setdefault(objective, []).append(training)
            if training.before is not None:
                self._later.setdefault(training.before, []).append(training)
        self.started = time.monotonic()
        self.pace = Pace()
        self.phase = ""
        """What a sweep that tunes does now, in words; empty for others."""
        for training, status in (statuses or {}).items():
            self._read(training, status)

    def _read(self, training: Training, status: TrainingStatus) -> None:
        standing = self[training]
        if status.state == "done":
            self.done(training, status.result, status.imported)
        elif status.state == "failed":
            self.failed(training, status.reason)
        elif standing.state != "failed":  # with the stage before it
            standing.state, standing.epoch = status.state, min(status.epochs, training.epochs)
            standing.best_rsum = status.best_rsum
            if status.damaged:
                standing.reason, standing.damaged = status.reason, True

    def __getitem__(self, training: Training) -> Standing:
        """The state of a training."""
        return self._standings[training]

    @property
    def standings(self) -> list[Standing]:
        """The state of every training, in the sweep's order."""
        return list(self._standings.values())

    def running(self, training: Training, epoch: int | None = None, best_rsum: float = math.nan) -> None:
        """Note that a training runs, if given with so many epochs done, the best of which had this val/rsum."""
        standing = self[training]
        standing.state, standing.epoch = "running", standing.epoch if epoch is None else epoch
        standing.best_rsum = _higher(standing.best_rsum, best_rsum)

    def epoch_done(self, training: Training, epoch: int, metrics: Mapping[str, float]) -> None:
        """Note that a training finished an epoch."""
        val_rsum = metrics.get("val/rsum", math.nan)
        self.running(training, epoch, val_rsum)
        self.pace.epoch_done(training, epoch)
        self[training].val_rsum = val_rsum

    def done(self, training: Training, result: Mapping[str, Any], imported: str = "") -> None:
        """Note that a training is done, here or in the store that an archive came from."""
        standing = self[training]
        standing.state, standing.epoch = "done", standing.epochs
        standing.imported, standing.test = imported, result["metrics"]
        standing.best_rsum = standing.test.get("val/rsum", standing.best_rsum)

    def failed(self, training: Training, reason: str) -> None:
        """Note that a training failed. The stages after it cannot start and fail too."""
        self[training].state, self[training].reason = "failed", reason
        for later in self._later.get(training, ()):
            self.failed(later, f"its {training.stage.name} stage failed")

    def waiting(self, training: Training) -> None:
        """Note that a training will be tried again, from the epochs that it has done."""
        self[training].state = "waiting"

    def restart(self, training: Training) -> None:
        """Note that a finished training will be repeated from its first epoch."""
        self._standings[training] = Standing(training)

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = Counter(self[training].state for training in (self._standings if trainings is None else trainings))
        return {state: chosen[state] for state in STATES}

    def share_done(self) -> float:
        """Share of the epochs that are done, 0 to 1. All epochs of a failed training count as done."""
        total = sum(training.epochs for training in self._standings)
        return 1 - sum(standing.left for standing in self.standings) / total if total else 1.0

    def left(self) -> TimeLeft | None:
        """The time left; None if it is not known yet."""
        return self.pace.left(self._standings)

    def blocks(self) -> list[Block]:
        """The blocks, ordered by stage, then by cell. A training at several points of the axes is in several."""
        return list(self._blocks)

    def seeds(self, block: Block) -> Mapping[Objective, Sequence[Standing]]:
        """The state of each seed of each objective of a block."""
        return {name: [self[training] for training in own] for name, own in self._blocks[block].items()}

    def of_block(self, block: Block) -> list[Standing]:
        """The state of every training of a block."""
        return [standing for seeds in self.seeds(block).values() for standing in seeds]

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.training.cell.id, one.training.key, one.state, dict(one.test)] for one in self.standings]
        return content_id(sorted(ends, key=str))


def _in_order(trainings: Iterable[Training]) -> list[Block]:
    """The blocks by stage, then by cell, then in the order of the points, in which trainings of a single one come."""
    blocks_of = [training.blocks for training in trainings]
    number: dict[tuple[str, ...], int] = {}
    for blocks in blocks_of:
        number.setdefault(blocks[0][:-1], len(number))
    single_first = sorted(blocks_of, key=lambda blocks: len(blocks) > 1)
    return sorted(
        dict.fromkeys(block for blocks in single_first for block in blocks), key=lambda block: number[block[:-1]]
    )


def _higher(score: float, other: float) -> float:
    """The higher of two scores, either of which may be NaN."""
    return score if math.isnan(other) or score > other else other
