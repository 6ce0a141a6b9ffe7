"""Whether the workers live, as the driver sees it: by what they report, and where they are silent by the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from goal_core.basics.atomic import DamagedError
from runners.execution.unit_line import UnitJob
from runners.store import Store

_LOOK_S = 0.5
"""Seconds that one look at the store may take."""
START_S = 120
"""Seconds that a worker may take to begin an attempt, which it spends with imports and with opening its data."""


@dataclass(slots=True, eq=False)
class _Watched:
    """What is known of one running unit."""

    job: UnitJob
    heard: float
    """When it gave the last sign of life, by the driver's clock."""
    where: str = ""
    """The worker, as it calls itself; empty before its first report."""
    touched: float = 0.0
    """The latest time of its attempts' records in the store."""
    looked: float = 0.0
    """When the store was read last."""
    told: bool = False
    """Whether the user has been told that there is no sign."""


class SignsOfLife:
    """Tells the user once when a unit's worker has given no sign of life for too long, and once when it is back.

    Workers report at least four times within their watchdog's time (`sign_seconds`). They also touch the record of an
    attempt every few seconds, which is looked at only where the reports stay away. A worker that does neither is
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

    def begin(self, unit: int, job: UnitJob) -> None:
        """A worker has been started for a unit."""
        if job.watchdog:
            self._units[unit] = _Watched(job, self._clock())

    def heard(self, unit: int, where: str) -> None:
        """A unit's worker has reported."""
        if unit in self._units:
            self._units[unit].where = where
            self._lives(self._units[unit])

    def end(self, unit: int) -> None:
        """A unit's worker has ended."""
        self._units.pop(unit, None)

    def check(self) -> None:
        """Look after the silent units; call this often."""
        now, elapsed = self._clock(), self._clock() - self._checked
        self._checked = now
        for unit in self._units.values():
            watchdog = unit.job.watchdog
            if elapsed > watchdog / 4:  # the driver was suspended, or busy, and has not heard what was said
                unit.heard = max(unit.heard, now - watchdog / 4)
            if now - unit.heard >= watchdog / 2 and now - unit.looked >= watchdog / 8:
                unit.looked = now
                self._look(unit)
                if self._clock() - now > _LOOK_S:
                    return

    def _look(self, unit: _Watched) -> None:
        before, unit.touched = unit.touched, _touched(unit.job)
        silent, patience = self._clock() - unit.heard, max(unit.job.watchdog, 0 if unit.touched else START_S)
        if before and unit.touched != before:
            self._lives(unit)
        elif unit.touched == before and silent >= patience and not unit.told:
            unit.told = True
            self._say(
                f"{unit.job.unit.label}: no sign of life from its worker{unit.where} for {silent:.0f} s; is the "
                "process or its machine suspended? The launch waits for it"
            )

    def _lives(self, unit: _Watched) -> None:
        unit.heard = self._clock()
        if unit.told:
            unit.told = False
            self._say(f"{unit.job.unit.label}: its worker{unit.where} is back")


def sign_seconds(watchdog: int) -> float:
    """Seconds between the reports of a worker that has nothing else to say; 0 where nobody waits for them."""
    return watchdog / 4


def _touched(job: UnitJob) -> float:
    """The time of a record that the unit's worker touches: the first that is open. 0 where there is none."""
    with suppress(OSError, DamagedError):
        store = Store(job.store)
        for training in job.unit.trainings:
            newest = store.folder(training).attempts.newest()
            if newest is not None and newest.launch_id == job.launch_id and newest.outcome == "running":
                return store.folder(training).attempts.seen(newest.n)
    return 0.0
