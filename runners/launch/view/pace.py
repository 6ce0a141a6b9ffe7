"""How long a launch will still take: its units one after the other on the devices, at the speed that they show.

A unit whose kind has not shown its speed takes what it was priced at, corrected by how wrong the prices of the others
were. Between two epochs the time left runs down by itself.
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
    _ratios: dict[object, tuple[bool, float, int]] = field(default_factory=dict)
    """By kind of unit, and of all together under None: what epochs took divided by what was expected, the mean of so
    many. Those of first epochs count, as the flag says, until there are others."""
    _answer: tuple[float, TimeLeft] | None = None
    """When the time left was last computed, and what it was."""

    def begin(self, unit: Unit, epoch: int) -> None:
        """Note that a worker has begun a unit, whose cells have done so many epochs."""
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
        ratio = (now - run.since) / (epoch - run.epoch) / self.epoch_s(run.unit)
        for kind in (_kind(run.unit), None):
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
        if self._answer is None or now >= self._answer[0] + 1.0:
            left = self._left(standings, now)
            self._answer = left and (now, left)
        return self._answer and self._answer[1]

    def _left(self, standings: Mapping[Training, Standing], now: float) -> TimeLeft | None:
        if not self.units or not (self.priced or self._ratios):
            return None
        parts = (tuple(one for one in unit.trainings if standings[one].state == "waiting") for unit in self.units)
        waiting, running = [Unit(trainings=part) for part in parts if part], self._running
        ends = {id(run): self._end(run, standings, now - run.since) for run in running}
        ended = {training: ends[id(run)] for training, run in self._runs.items()}
        free = sorted([*ends.values(), *[0.0] * (self.lanes - len(ends))])
        measured = all(_kind(unit) in self._ratios for unit in (*waiting, *(run.unit for run in running)))
        seconds = _schedule(waiting, free, ended, standings, self._epoch_s)
        return TimeLeft(seconds, priced=self.priced and not measured)

    @property
    def _running(self) -> list[_Run]:
        return list({id(run): run for run in self._runs.values()}.values())

    def _epoch_s(self, unit: Unit) -> float:
        """Seconds of an epoch of a unit, by the speed of its kind or else of all."""
        known = self._ratios.get(_kind(unit)) or self._ratios.get(None)
        return self.epoch_s(unit) * (known[1] if known else 1.0)

    def _end(self, run: _Run, standings: Mapping[Training, Standing], taken: float) -> float:
        """Seconds until a unit ends whose epoch has taken so long already."""
        states = [standings[training] for training in run.unit.trainings]
        epochs = max((standing.left for standing in states if standing.state == "running"), default=0)
        each = max(taken, self._epoch_s(run.unit))
        return each - taken + (epochs - 1) * each if epochs else 0.0


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
