"""A schedule of units on a number of devices, computed in advance: its end, its idle time and how good it can get.

The simulated launch follows the rules of the real one: a unit starts when the unit that it follows has ended and a
device has room, and of the units that could start, that of the lowest rank starts first. Units that share a device run
as fast as alone while it has time for all of them; else each is slower by the same factor.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9
"""Parts of a device that are lost in adding up parts."""


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
    slots: int = 1
    """How many units of its kind have room on a device at the same time."""
    busy: float = 1.0
    """Share of its time, 0 to 1, in which it keeps a device busy where it has one for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What becomes of units on a number of devices. All times in seconds."""

    devices: int
    end_s: float
    """When the last unit ends, counted from the start of the first."""
    work_s: float
    """Device seconds of all units in this order, with what several of them make at the same time. Units that share a
    device count their part of it."""
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
        return max(0.0, 1 - self.work_s / (self.devices * self.end_s)) if self.end_s else 0.0


def simulate(units: Sequence[PlannedUnit], devices: int) -> Schedule:
    """Run units on a number of equal devices.

    Args:
        units: the units; none follows a later one of the list.
        devices: how many there are, at least 1.

    Returns:
        The schedule; the same for the same units.
    """
    followers: dict[int, list[int]] = {}
    ready: dict[int, list[tuple[tuple[int, float], int]]] = {}
    for number, unit in enumerate(units):
        if unit.after is None:
            ready.setdefault(unit.slots, []).append((unit.rank, number))
        else:
            followers.setdefault(unit.after, []).append(number)
    for waiting in ready.values():
        heapq.heapify(waiting)
    room = _Room(devices)
    starts, spent = [0.0] * len(units), [0.0] * len(units)
    made: dict[str, float] = {}
    now = 0.0
    while room.running or any(ready.values()):
        while (slots := _next(ready, room)) is not None:
            number = heapq.heappop(ready[slots])[1]
            unit = units[number]
            device = room.place(slots)
            needed, starts[number] = unit.seconds, now
            if unit.once and made.get(unit.once, now + 1) > now:
                needed += unit.once_s
                there = now + unit.once_s * device.slower(unit.busy)
                made[unit.once] = min(made.get(unit.once, there), there)
            spent[number] = needed
            room.start(device, now, number, needed, unit)
        now, device, ended = room.end_next()
        if units[ended].slots > 1:
            spent[ended] = (now - starts[ended]) / units[ended].slots
        for number in followers.get(ended, ()):
            heapq.heappush(ready.setdefault(units[number].slots, []), (units[number].rank, number))
    return Schedule(
        devices=devices,
        end_s=now,
        work_s=sum(spent),
        tail_s=now - min(device.left for device in room.devices),
        least_work_s=max(_least_work(units, slots=True), _least_work(units, slots=False)),
        critical_s=_critical_s(units),
        starts=tuple(starts),
    )


def _next(ready: Mapping[int, Sequence[tuple[tuple[int, float], int]]], room: _Room) -> int | None:
    """How many units share a device with the unit to start next: that of the lowest rank of those that find room."""
    can_start = [(waiting[0], slots) for slots, waiting in ready.items() if waiting and room.has(slots)]
    return min(can_start)[1] if can_start else None


class _Device:
    """A device and the units on it. Together they get no more than one device's time."""

    def __init__(self) -> None:
        self.free = 1.0
        self.left = 0.0
        """When a unit ended here last."""
        self.changes = 0
        """How often a unit has started or ended here."""
        self._running: dict[int, list[float]] = {}
        """Seconds left of each unit as if it were alone, and its part of the device's time."""
        self._since = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._running

    def slower(self, busy: float = 0.0) -> float:
        """How much longer everything takes than alone, with one more unit that would use such a part of its time."""
        return max(1.0, sum(part for _, part in self._running.values()) + busy)

    def advance(self, now: float) -> None:
        """Let its units work until now."""
        done = (now - self._since) / self.slower()
        for one in self._running.values():
            one[0] -= done
        self._since = now

    def start(self, number: int, seconds: float, unit: PlannedUnit) -> None:
        self.free -= 1 / unit.slots
        self._running[number] = [seconds, 1.0 if unit.slots == 1 else unit.busy]

    def first(self) -> tuple[float, int]:
        """When the first of its units ends if nothing changes, and the unit."""
        seconds, number = min((seconds, number) for number, (seconds, _) in self._running.items())
        return self._since + max(0.0, seconds) * self.slower(), number

    def end(self, number: int, slots: int) -> None:
        del self._running[number]
        self.free = min(1.0, self.free + 1 / slots) if self._running else 1.0
        self.left = self._since


class _Room:
    """Equal devices. As in Ray, a unit goes to the device with the least room that is enough for it."""

    def __init__(self, devices: int) -> None:
        self.devices = [_Device() for _ in range(devices)]
        self.running = 0
        """How many units run."""
        self._ends: list[tuple[float, int, int, int]] = []
        """When the first unit of each busy device ends, the unit, the device, and the state of the device that this
        holds for."""
        self._idle = list(range(devices))
        self._partly: set[int] = set()
        """The devices with units and room for more."""
        self._slots: dict[int, int] = {}
        self._place = 0

    def has(self, slots: int) -> bool:
        """Whether a unit that shares a device with so many finds room."""
        return bool(self._idle) or any(self.devices[one].free + _ROUNDING >= 1 / slots for one in self._partly)

    def place(self, slots: int) -> _Device:
        """The device for a unit, which has room for it."""
        fits = [
            (self.devices[one].free, one) for one in self._partly if self.devices[one].free + _ROUNDING >= 1 / slots
        ]
        self._place = min(fits)[1] if fits else self._idle.pop()
        return self.devices[self._place]

    def start(self, device: _Device, now: float, number: int, seconds: float, unit: PlannedUnit) -> None:
        """Start a unit on the device that `place` has found."""
        device.advance(now)
        device.start(number, seconds, unit)
        self._slots[number] = unit.slots
        self.running += 1
        self._plan(device, self._place)

    def end_next(self) -> tuple[float, _Device, int]:
        """Go on until a unit ends. Returns when, its device and its number."""
        while True:
            now, number, place, changes = heapq.heappop(self._ends)
            device = self.devices[place]
            if changes == device.changes:
                break
        device.advance(now)
        device.end(number, self._slots[number])
        self.running -= 1
        self._plan(device, place)
        return now, device, number

    def _plan(self, device: _Device, place: int) -> None:
        device.changes += 1
        self._partly.discard(place)
        if device.is_idle:
            self._idle.append(place)
            return
        if device.free > _ROUNDING:
            self._partly.add(place)
        when, number = device.first()
        heapq.heappush(self._ends, (when, number, place, device.changes))


def _least_work(units: Sequence[PlannedUnit], *, slots: bool) -> float:
    """The least device seconds of units: by the room that they take, or else by the device's time that they use.

    What is made once is made by one unit.
    """
    weights = [1 / unit.slots if slots else 1.0 if unit.slots == 1 else min(1.0, unit.busy) for unit in units]
    least: dict[str, float] = {}
    for unit, weight in zip(units, weights, strict=True):
        if unit.once:
            least[unit.once] = min(weight * unit.once_s, least.get(unit.once, weight * unit.once_s))
    return sum(weight * unit.seconds for unit, weight in zip(units, weights, strict=True)) + sum(least.values())


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
