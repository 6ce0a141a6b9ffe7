"""How long a launch will still take: its units one after the other on the devices, at the speed that they show.

A unit that has not shown its speed takes what others of its kind do, or else what it was priced at. Between two epochs
the time left runs down by itself.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runners.launch.view.standing import Standing
from sweeps import Training, Unit


class TimeLeft(NamedTuple):
    """What is left of a launch."""

    seconds: float
    priced: bool
    """Whether it rests, in part at least, on the price and not on the speed of this launch."""


def _cells(unit: Unit) -> float:
    return float(len(unit.trainings))


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
class _Speed:
    """Seconds that epochs took, and what they were expected to take."""

    seconds: float = 0.0
    expected: float = 0.0
    is_first: bool = True
    """Whether they are first epochs, which count until there are others."""

    def add(self, seconds: float, expected: float, *, is_first: bool) -> None:
        if is_first < self.is_first:
            self.seconds = self.expected = 0.0
        if is_first <= self.is_first:
            self.seconds, self.expected, self.is_first = self.seconds + seconds, self.expected + expected, is_first


@dataclass(slots=True)
class Pace:
    """The speed of one launch, and what follows from it."""

    units: Sequence[Unit] = ()
    """The units of the launch, in the order in which they start. Cells that are tried again are looked for there."""
    lanes: int = 1
    """Units that train at the same time."""
    epoch_s: Callable[[Unit], float] = _cells
    """What an epoch of a unit is expected to take: seconds if `priced`, else a measure that compares units."""
    priced: bool = False
    _runs: dict[Training, _Run] = field(default_factory=dict)
    _speeds: dict[object, _Speed] = field(default_factory=dict)
    """By kind of unit, and of all together under None."""
    _expected: dict[object, float] = field(default_factory=dict)
    """Answers of `epoch_s`, by kind of unit and number of cells."""
    _late: float = 1.0
    """How many times as long as expected an epoch takes by now that is the first of its kind."""
    _answer: tuple[float, TimeLeft] | None = None
    """When the time left was computed last, and the time left."""

    def begin(self, unit: Unit, epoch: int) -> None:
        """Note that a worker has begun a unit, of which so many epochs are done."""
        self._runs |= dict.fromkeys(unit.trainings, _Run(unit, time.monotonic(), epoch))
        self.lanes = max(self.lanes, len(self._running))

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
        seconds, expected = (now - run.since) / (epoch - run.epoch), self._expected_s(run.unit)
        for kind in (_kind(run.unit), None):
            self._speeds.setdefault(kind, _Speed()).add(seconds, expected, is_first=run.is_first)
        run.since, run.epoch, run.is_first = now, epoch, False

    def left(self, standings: Mapping[Training, Standing]) -> TimeLeft | None:
        """What is left, computed once a second, because a large sweep has thousands of units.

        Args:
            standings: the state of every training.

        Returns:
            None without a price and before the first epoch.
        """
        now = time.monotonic()
        if self._answer is not None and now < self._answer[0] + 1.0:
            return self._answer[1]
        waiting, running = self._waiting(standings), self._running
        kinds = {_kind(unit) for unit in (*waiting, *(run.unit for run in running))}
        measured = kinds <= self._speeds.keys()
        if not self.units or not (measured or self.priced or None in self._speeds):
            return None
        self._late = 1.0
        unknown = [run for run in running if _kind(run.unit) not in self._speeds]
        self._late = max([1.0, *((now - run.since) / self._epoch_s(run.unit) for run in unknown)])
        ends = {id(run): self._end(run, standings, now - run.since) for run in running}
        ended = {training: ends[id(run)] for training, run in self._runs.items()}
        free = sorted([*ends.values(), *[0.0] * (self.lanes - len(ends))])
        left = TimeLeft(_schedule(waiting, free, ended, standings, self._epoch_s), priced=self.priced and not measured)
        self._answer = now, left
        return left

    @property
    def _running(self) -> list[_Run]:
        return list({id(run): run for run in self._runs.values()}.values())

    def _expected_s(self, unit: Unit) -> float:
        key = _kind(unit), len(unit.trainings)
        if key not in self._expected:
            self._expected[key] = self.epoch_s(unit)
        return self._expected[key]

    def _epoch_s(self, unit: Unit) -> float:
        """Seconds of an epoch of a unit, by the speed of its kind or else of all."""
        own = self._speeds.get(_kind(unit))
        speed = own or self._speeds.get(None)
        expected_s = self._expected_s(unit) * (speed.seconds / speed.expected if speed else 1.0)
        return expected_s if own else expected_s * self._late

    def _end(self, run: _Run, standings: Mapping[Training, Standing], taken: float) -> float:
        """Seconds until a unit ends whose epoch has taken so long already."""
        states = [standings[training] for training in run.unit.trainings]
        epochs = max((standing.left for standing in states if standing.state == "running"), default=0)
        each = self._epoch_s(run.unit)
        return max(0.0, each - taken) + (epochs - 1) * each if epochs else 0.0

    def _waiting(self, standings: Mapping[Training, Standing]) -> list[Unit]:
        """What waits of each unit."""
        parts = (tuple(one for one in unit.trainings if standings[one].state == "waiting") for unit in self.units)
        return [Unit(trainings=part) for part in parts if part]


def _schedule(
    units: Sequence[Unit],
    free: list[float],
    ended: dict[Training, float],
    standings: Mapping[Training, Standing],
    epoch_s: Callable[[Unit], float],
) -> float:
    """Seconds until the last unit ends. Each starts as soon as the one before it has ended and a lane is free.

    Args:
        units: those that wait, in their order.
        free: when each lane is free, ascending.
        ended: when the trainings end that run now.
        standings: the state of every training.
        epoch_s: the seconds of a unit's epoch.
    """
    followers: dict[Training, list[int]] = {}
    line: list[tuple[float, int]] = []
    end = max(free)
    for number, unit in enumerate(units):
        before = unit.trainings[0].before
        if before is None or before in ended or standings[before].state == "done":
            line.append((0.0 if before is None else ended.get(before, 0.0), number))
        else:
            followers.setdefault(before, []).append(number)
    heapq.heapify(line)
    while line:
        ready, number = heapq.heappop(line)
        epochs = max(standings[training].left for training in units[number].trainings)
        until = max(ready, free[0]) + epochs * epoch_s(units[number])
        heapq.heapreplace(free, until)
        end = max(end, until)
        for training in units[number].trainings:
            for follower in followers.pop(training, ()):
                heapq.heappush(line, (until, follower))
    return end


def _kind(unit: Unit) -> tuple[str, str]:
    return unit.trainings[0].cell.model.backbone.name, unit.stage.name
