"""A schedule of units on a number of devices, computed in advance: its end, its idle time and how good it can get.

The simulated launch follows the rules of the real one: a unit starts when the unit that it follows has ended and a
device is free, and of the units that could start, that of the lowest rank starts first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUnit:
    """A unit of which only its price matters."""

    seconds: float
    """Device seconds from its start to its end, without `once_s`."""
    after: int | None = None
    """The number of the unit that it follows: its place in the list of units. None can start at once."""
    rank: tuple[int, float] = (0, 0.0)
    """Of the units that wait, that of the lowest rank starts first."""
    once: str = ""
    """What all units with this text need and the first one makes, such as a backbone's features; empty for nothing."""
    once_s: float = 0.0
    """Seconds that making it takes, for each unit that starts before it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What becomes of units on a number of devices. All times in seconds."""

    devices: int
    end_s: float
    """When the last unit ends, counted from the start of the first."""
    work_s: float
    """Device seconds of all units in this order, with what several of them make at the same time."""
    least_work_s: float
    """Device seconds of all units in the best order, where each thing that is made once is made by one unit."""
    tail_s: float
    """How long before the end the first device has run out of work for good."""
    critical_s: float
    """The longest chain of units that follow each other, and of what is made for them: with any number of devices, in
    any order, the end is not earlier."""
    starts: tuple[float, ...]
    """When each unit starts."""

    @property
    def bound_s(self) -> float:
        """No order of these units ends earlier on so many devices."""
        return max(self.least_work_s / self.devices, self.critical_s)

    @property
    def idle(self) -> float:
        """Share of the devices' time in which they have nothing to do, 0 to 1."""
        return 1 - self.work_s / (self.devices * self.end_s) if self.end_s else 0.0


def simulate(units: Sequence[PlannedUnit], devices: int) -> Schedule:
    """Run units on a number of equal devices.

    Args:
        units: the units; none follows a later one of the list.
        devices: how many units can run at the same time, at least 1.

    Returns:
        The schedule; the same for the same units.
    """
    followers: dict[int, list[int]] = {}
    ready: list[tuple[tuple[int, float], int]] = []
    for number, unit in enumerate(units):
        if unit.after is None:
            ready.append((unit.rank, number))
        else:
            followers.setdefault(unit.after, []).append(number)
    heapq.heapify(ready)
    running: list[tuple[float, int, int]] = []
    free, left = list(range(devices)), [0.0] * devices
    starts, lasts = [0.0] * len(units), [0.0] * len(units)
    made: dict[str, float] = {}
    now = 0.0
    while ready or running:
        while ready and free:
            number = heapq.heappop(ready)[1]
            unit = units[number]
            starts[number], lasts[number] = now, unit.seconds
            if unit.once and made.get(unit.once, now + 1) > now:
                lasts[number] += unit.once_s
                made[unit.once] = min(made.get(unit.once, now + unit.once_s), now + unit.once_s)
            heapq.heappush(running, (now + lasts[number], number, free.pop()))
        now, ended, device = heapq.heappop(running)
        free.append(device)
        left[device] = now
        for number in followers.get(ended, ()):
            heapq.heappush(ready, (units[number].rank, number))
    return Schedule(
        devices=devices,
        end_s=now,
        work_s=sum(lasts),
        tail_s=now - min(left),
        least_work_s=sum(unit.seconds for unit in units) + sum(_least_once(units).values()),
        critical_s=_critical_s(units),
        starts=tuple(starts),
    )


def _least_once(units: Sequence[PlannedUnit]) -> dict[str, float]:
    """The least seconds in which each thing is made once."""
    least: dict[str, float] = {}
    for unit in units:
        if unit.once:
            least[unit.once] = min(unit.once_s, least.get(unit.once, unit.once_s))
    return least


def _critical_s(units: Sequence[PlannedUnit]) -> float:
    """When the last unit could end if there were a device for each.

    What is made once is there at the earliest when the first unit that needs it could have started and made it. Each
    unit that needs it either waits until then or makes it too, which is not earlier.
    """
    free = _ends(units, {})
    begins: dict[str, float] = {}
    for unit in units:
        if unit.once:
            start = 0.0 if unit.after is None else free[unit.after]
            begins[unit.once] = min(start, begins.get(unit.once, start))
    there = {once: begins[once] + seconds for once, seconds in _least_once(units).items()}
    return max(_ends(units, there), default=0.0)


def _ends(units: Sequence[PlannedUnit], there: dict[str, float]) -> list[float]:
    """When each unit ends that starts when its predecessor has ended and what it needs is there."""
    ends: list[float] = []
    for unit in units:
        ready = 0.0 if unit.after is None else ends[unit.after]
        ends.append(max(ready, there.get(unit.once, 0.0)) + unit.seconds)
    return ends
