"""The progress of a sweep: the state of its trainings, by block and by objective, and the time left.

No drawing, no writing.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps import Block, Training, Unit, content_id

Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
_NEW = TrainingStatus(state="waiting")
_REMEMBERED = 10
"""Epochs by which the speed is known; older ones count less and less."""
_RARELY = 100
"""The time left is not computed again before so many times what it took have passed."""


class TimeLeft(NamedTuple):
    """What is left of a launch."""

    seconds: float
    priced: bool
    """Whether it rests, in part at least, on the price and not on the speed of this launch."""


@dataclass(slots=True)
class _Mean:
    """A mean of which the newest number weighs at least as one of `_REMEMBERED`, so that it follows a speed."""

    value: float = 0.0
    count: int = 0

    def add(self, number: float) -> None:
        """Count one more number."""
        self.count = min(self.count + 1, _REMEMBERED)
        self.value += (number - self.value) / self.count

    def after(self, least: float) -> float:
        """What the mean will be after one more number, of which this is the least that it can be."""
        return self.value + max(0.0, least - self.value) / min(self.count + 1, _REMEMBERED)


@dataclass(slots=True)
class _Run:
    """A unit that trains."""

    unit: Unit
    since: float
    """When its last epoch ended, or when it began."""
    epoch: int
    """Epochs done."""
    follows: bool
    """Whether it began on a device that another unit had left, whose process it may use."""
    is_first: bool = True
    """Whether it has not ended an epoch since it began. The first one also holds the start of its process."""


@dataclass(slots=True)
class Pace:
    """The speed of one launch, and the time left at that speed.

    The units of a part are given in their order to the device that is free first, none before the units of its cells
    that come before it. A unit whose kind has not shown its speed takes what it was priced at, corrected by how wrong
    the prices of the others were. Between two epochs the time left runs down by itself; an epoch that lasts longer
    than the others counts as one of them.
    """

    parts: Sequence[Sequence[Unit]] = ()
    """The units of the launch, then those of each part of a search that waits for all that comes before."""
    lanes: int = 1
    """Units that train at the same time."""
    epoch_s: Callable[[Unit], float] = lambda unit: float(len(unit.trainings))
    """What an epoch of a unit is expected to take: seconds if `priced`, else a measure that compares units."""
    priced: bool = False
    _runs: dict[Training, _Run] = field(default_factory=dict)
    _ratios: dict[object, _Mean] = field(default_factory=dict)
    """By kind of unit, and of all together under None: what epochs took divided by what was expected."""
    _starts: dict[bool, _Mean] = field(default_factory=lambda: {follows: _Mean() for follows in (False, True)})
    """Seconds of units before their first epoch, by whether they follow others."""
    _left_by: int = 0
    """Devices that a unit has left and on which none has begun."""
    _ends: _Mean = field(default_factory=_Mean)
    """Seconds of units after their last epoch."""
    _answer: tuple[float, TimeLeft] | None = None
    """When the time left was last computed, and what it was."""
    _again: float = 0.0
    """When it may be computed again."""

    def begin(self, unit: Unit, epoch: int) -> None:
        """Note that a worker has begun a unit, whose cells have done so many epochs."""
        run = _Run(unit, time.monotonic(), epoch, follows=self._left_by > 0)
        self._left_by = max(0, self._left_by - 1)
        self._runs |= dict.fromkeys(unit.trainings, run)
        self.lanes = max(self.lanes, len({id(run) for run in self._runs.values()}))

    @property
    def has_units(self) -> bool:
        """Whether a unit trains."""
        return bool(self._runs)

    def end(self, unit: Unit) -> None:
        """Note that a unit's worker has ended."""
        run = self._run_of(unit)
        if run is not None and run.epoch >= unit.trainings[0].epochs:
            self._ends.add(time.monotonic() - run.since)
        self._left_by += run is not None
        for training in unit.trainings:
            self._runs.pop(training, None)

    def epoch_done(self, training: Training, epoch: int, own_s: float = math.inf) -> None:
        """Note that a cell finished an epoch. The cells of a unit report it together.

        Args:
            training: the cell's training.
            epoch: how many it has done.
            own_s: seconds that the cell trained, of which a first epoch counts so many for each cell of its unit.
        """
        run = self._runs.get(training)
        if run is None or epoch <= run.epoch:
            return
        now = time.monotonic()
        taken = (now - run.since) / (epoch - run.epoch)
        if run.is_first:
            seconds = min(taken, own_s * len(run.unit.trainings))
            self._starts[run.follows].add(taken - seconds)
            taken = seconds
        for kind in (run.unit.kind, None):
            self._ratios.setdefault(kind, _Mean()).add(taken / self.epoch_s(run.unit))
        run.since, run.epoch, run.is_first = now, epoch, False

    def remember(self, before: Pace) -> None:
        """Take over how long units take to start, from an earlier part of the launch."""
        self._starts = before._starts

    def left(self, epochs_left: Callable[[Training], int]) -> TimeLeft | None:
        """What is left, computed once a second at most, and less often for thousands of units.

        Args:
            epochs_left: how many epochs a training still has to do.

        Returns:
            None without a price and before the first epoch.
        """
        now, began = time.monotonic(), time.perf_counter()
        if self.parts and (self.priced or self._ratios) and (self._answer is None or now >= self._again):
            self._answer = now, self._left(epochs_left, now)
            self._again = now + max(1.0, _RARELY * (time.perf_counter() - began))
        return self._answer and self._answer[1]

    @property
    def until(self) -> float:
        """When the launch ends by the last answer of `left`, as a time of this machine's clock; 0 before the first."""
        if self._answer is None:
            return 0.0
        at, left = self._answer
        return time.time() + at + left.seconds - time.monotonic()

    def _left(self, epochs_left: Callable[[Training], int], now: float) -> TimeLeft:
        speeds, end, unmeasured = self._speeds(now), 0.0, False
        for part in self.parts:
            free, ends = [end] * self.lanes, defaultdict[str, float](float)
            runs = [(self._run_of(unit), unit) for unit in part]
            for run, unit in sorted(runs, key=lambda pair: pair[0] is None):  # those that train have their device
                epochs, cells = max(map(epochs_left, unit.trainings)), [one.cell.id for one in unit.trainings]
                if epochs or run:
                    unmeasured |= epochs > 0 and unit.kind not in self._ratios
                    epoch_s = self.epoch_s(unit) * speeds.get(unit.kind, speeds[None])
                    lane = heapq.heappop(free)
                    follows = run.follows if run else lane > end
                    start_s = self._starts[follows].value if run is None or run.is_first else 0.0
                    now_s, then_s = (start_s + epoch_s, self._ends.value) if epochs else (self._ends.value, 0.0)
                    taken = now - run.since if run else 0.0
                    unit_s = max(0.0, now_s - taken) + max(0, epochs - 1) * epoch_s + then_s
                    stop = max(lane, *(ends[cell] for cell in cells)) + unit_s
                    heapq.heappush(free, stop)
                    ends |= dict.fromkeys(cells, stop)
            end = max(free)
        return TimeLeft(end, priced=self.priced and unmeasured)

    def _run_of(self, unit: Unit) -> _Run | None:
        return next((self._runs[one] for one in unit.trainings if one in self._runs), None)

    def _speeds(self, now: float) -> dict[object, float]:
        """By kind of unit, what an epoch takes divided by what was expected, with the epochs that now last longer."""
        overall = self._ratios.get(None, _Mean(1.0))
        # Copies, because the view redraws itself in a thread of its own.
        speeds = {None: overall.value} | {kind: mean.value for kind, mean in [*self._ratios.items()]}
        for run in {id(run): run for run in [*self._runs.values()]}.values():  # those of a unit share theirs
            if run.epoch < run.unit.trainings[0].epochs:
                start_s = self._starts[run.follows].value if run.is_first else 0.0
                taken = (now - run.since - start_s) / self.epoch_s(run.unit)
                for kind in (run.unit.kind, None):
                    mean = self._ratios.get(kind, _Mean(overall.value))
                    speeds[kind] = max(speeds.get(kind, 0.0), mean.after(taken))
        return speeds


class SweepProgress:
    """The status of every training of one sweep: as the store has it, then as its launch tells.

    Args:
        trainings: all trainings, in the sweep's order.
        statuses: what the store says of them; those that are missing wait.
    """

    def __init__(
        self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus] | None = None
    ) -> None:
        self.trainings = list(trainings)
        self._statuses = dict.fromkeys(self.trainings, _NEW)
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
            if status.state == "done":
                self.done(training, status.result)
            elif status.state == "failed":
                self.failed(training, status.reason)
            elif self[training].state != "failed":  # with the stage before it
                self._statuses[training] = replace(status, epochs=min(status.epochs, training.epochs))

    def __getitem__(self, training: Training) -> TrainingStatus:
        """The status of a training; of one that is done or runs, with the epochs of those that it continues."""
        return self._statuses[training]

    def __contains__(self, training: Training) -> bool:
        """Whether a training is one of the sweep."""
        return training in self._statuses

    def running(self, training: Training, epoch: int | None = None, best_rsum: float = math.nan) -> None:
        """Note that a training runs, if given with so many epochs done, the best of which had this val/rsum."""
        before = self[training]
        epoch, best_rsum = before.epochs if epoch is None else epoch, _higher(before.best_rsum, best_rsum)
        self._statuses[training] = replace(before, state="running", epochs=epoch, best_rsum=best_rsum)

    def epoch_done(self, training: Training, epoch: int, metrics: Mapping[str, float]) -> None:
        """Note that a training finished an epoch."""
        self.running(training, epoch, metrics.get("val/rsum", math.nan))
        trained_s, share_waited = metrics.get("time/train_s", math.inf), metrics.get("time/data_wait_share", 0.0)
        own_s = trained_s / max(1 - share_waited, 0.01) + metrics.get("time/val_s", 0.0)
        self.pace.epoch_done(training, epoch, own_s)

    def done(self, training: Training, result: Mapping[str, Any]) -> None:
        """Note that a training is done."""
        best_rsum = result["metrics"].get("val/rsum", self[training].best_rsum)
        self._statuses[training] = TrainingStatus(
            state="done", epochs=training.epochs, best_rsum=best_rsum, result=result
        )

    def failed(self, training: Training, reason: str) -> None:
        """Note that a training failed. The stages after it cannot start and fail too."""
        self._statuses[training] = replace(self[training], state="failed", reason=reason)
        for later in self._later.get(training, ()):
            self.failed(later, f"its {training.stage.name} stage failed")

    def waiting(self, training: Training, reason: str = "") -> None:
        """Note that a training will be tried again, from the epochs that it has done, and why not in this launch."""
        self._statuses[training] = replace(self[training], state="waiting", reason=reason or self[training].reason)

    def restart(self, training: Training) -> None:
        """Note that a finished training will be repeated from its first epoch."""
        self._statuses[training] = _NEW

    def begun(self, training: Training) -> bool:
        """Whether a training waits with epochs saved, from which it continues."""
        return self[training].state == "waiting" and self[training].epochs > 0

    def epochs_left(self, training: Training) -> int:
        """Epochs that a training still has to do: none once it is done or has failed, all that may join the sweep."""
        status = self._statuses.get(training, _NEW)
        return training.epochs - status.epochs if status.state in ("waiting", "running") else 0

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = Counter(self[training].state for training in (self.trainings if trainings is None else trainings))
        return {state: chosen[state] for state in STATES}

    def share_done(self) -> float:
        """Share of the epochs that are done, 0 to 1. All epochs of a failed training count as done."""
        total = sum(training.epochs for training in self.trainings)
        return 1 - sum(map(self.epochs_left, self.trainings)) / total if total else 1.0

    def left(self) -> TimeLeft | None:
        """The time left; None if it is not known yet."""
        return self.pace.left(self.epochs_left)

    def blocks(self) -> list[Block]:
        """The blocks, ordered by stage, then by cell. A training at several points of the axes is in several."""
        return list(self._blocks)

    def seeds(self, block: Block) -> Mapping[Objective, Sequence[Training]]:
        """The seeds of each objective of a block."""
        return self._blocks[block]

    def of_block(self, block: Block) -> list[Training]:
        """The trainings of a block."""
        return [training for seeds in self._blocks[block].values() for training in seeds]

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.cell.id, one.key, self[one].state, dict(self[one].metrics)] for one in self.trainings]
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
