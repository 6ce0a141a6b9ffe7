"""What the driver sees of its workers in the store: whether they are alive, and whether they have begun."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from goal_core.basics.atomic import DamagedError
from runners.execution.unit_listener import beat_seconds
from runners.execution.worker import UnitJob
from runners.store import Attempt, AttemptFolder, Store
from runners.store.storage import Place

T = TypeVar("T")

_Sign = tuple[float, str]
START_S = 120
"""Seconds that a worker may take to begin, which it spends with imports and with opening its data."""


@dataclass(slots=True)
class _Watched:
    """What is known of one running unit."""

    job: UnitJob
    sign: _Sign
    """The last sign of life: its time in the store, and the worker that gave it."""
    seen: float
    """When that changed last, by the driver's clock."""
    silent: bool = False
    """Whether the user has been told that there is none."""


class SignsOfLife:
    """Tells the user once when a unit's worker has given no sign of life for too long, and once when it is back.

    A worker touches the record of an attempt every few seconds (`UnitListener`). One that has stopped doing so is
    suspended, its machine cannot be reached, or it is stuck where not even its watchdog runs. Nothing is done about it
    here: a worker that wakes up goes on, and Ray restarts one that is dead. Only changes of a file's time matter, so no
    clocks are compared.

    Args:
        say: shows a line to the user.
        clock: seconds; for tests.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._units: dict[int, _Watched] = {}
        self._checked = clock()
        self._look: tuple[float, Future[list[_Sign]], list[_Watched]] | None = None
        """A look at the store that has begun: the time since the one before, what it finds, and of which units."""

    def begin(self, job: UnitJob) -> None:
        """A worker has been started for a unit."""
        if job.watchdog:
            self._units[id(job)] = _Watched(job, _last_sign(job), self._clock())

    def end(self, job: UnitJob) -> None:
        """A unit's worker has ended."""
        self._units.pop(id(job), None)

    def check(self) -> None:
        """Look at the running units; call this often."""
        pause = min((beat_seconds(unit.job.watchdog) for unit in self._units.values()), default=5.0)
        now = self._clock()
        elapsed = now - self._checked
        if self._look is None:
            if elapsed < pause:
                return
            self._checked, units = now, list(self._units.values())
            if not units:
                return
            storage = Place.open(units[0].job.store).storage
            self._look = elapsed, storage.soon(lambda: [_last_sign(unit.job) for unit in units]), units
        elapsed, found, units = self._look
        if not found.done():
            return
        self._look = None
        for unit, sign in zip(units, found.result(), strict=True):
            if self._units.get(id(unit.job)) is not unit:
                continue  # it has ended meanwhile
            # The driver itself may have been suspended, or busy; then it has not seen what it should have seen.
            if sign != unit.sign or elapsed > 2 * pause + 1:
                self._back(unit, sign)
                unit.sign, unit.seen = sign, now
            elif not unit.silent and now - unit.seen >= max(unit.job.watchdog, 0 if sign[1] else START_S):
                unit.silent = True
                self._say(
                    f"{unit.job.unit.label}: no sign of life from its worker{sign[1]} for {now - unit.seen:.0f} s; is "
                    "the process or its machine suspended? The launch waits for it"
                )

    def _back(self, unit: _Watched, sign: tuple[float, str]) -> None:
        if unit.silent and sign != unit.sign:
            unit.silent = False
            self._say(f"{unit.job.unit.label}: its worker{sign[1]} is back")


def _last_sign(job: UnitJob) -> _Sign:
    """The latest sign of life of a unit's workers: its time, and the worker, which is empty before it has begun."""

    def read(attempts: AttemptFolder) -> tuple[float, AttemptFolder]:
        with suppress(OSError, DamagedError):
            if numbers := attempts.numbers():
                return attempts.seen(numbers[-1]), attempts
        return 0.0, attempts

    seen, attempts = max(_of_each(job, read), key=lambda found: found[0], default=(0.0, None))
    if attempts is None or not seen:
        return 0.0, ""
    with suppress(OSError, DamagedError):
        return seen, _where(attempts.newest(), job.launch_id)
    return seen, ""


def _where(attempt: Attempt | None, launch_id: str) -> str:
    if attempt is None or attempt.launch_id != launch_id:
        return ""
    return f" on {attempt.host} (pid {attempt.pid})"


def count_attempts(job: UnitJob) -> int:
    """The number of attempts at a unit's trainings, as far as the store can be read."""

    def count(attempts: AttemptFolder) -> int:
        with suppress(OSError):
            return len(attempts.numbers())
        return 0

    return sum(_of_each(job, count))


def _of_each(job: UnitJob, read: Callable[[AttemptFolder], T]) -> list[T]:
    """Read something of the attempts at each of a unit's trainings."""
    try:
        store = Store(job.store)
    except (OSError, DamagedError):
        return []
    trainings = job.unit.trainings
    return store.storage.each(lambda one: read(store.folder(one).seen_at_once().attempts), trainings)
