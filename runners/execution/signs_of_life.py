"""Whether the workers live, as the driver hears it from their reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from runners.execution.unit_line import UnitJob

START_S = 120
"""Seconds that a worker may take for imports between its first report and its second."""


@dataclass(slots=True)
class _Heard:
    """What is known of one running unit."""

    job: UnitJob
    at: float
    """When its worker gave the last sign of life, by the driver's clock."""
    where: str = ""
    """The worker, as it calls itself; empty before its first report."""
    reports: int = 0
    told: bool = False
    """Whether the user has been told that there is no sign."""


class SignsOfLife:
    """Tells the user once when a unit's worker has given no sign of life for too long, and once when it is back.

    Workers report at least four times within their watchdog's time (`runners.execution.trial`). One that does not is
    suspended, its machine cannot be reached, or it is stuck where not even its watchdog runs. Nothing is done about it
    here: a worker that wakes up goes on, and Ray restarts one that is dead.

    Args:
        say: shows a line to the user.
        clock: seconds; for tests.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._units: dict[int, _Heard] = {}
        self._checked = clock()

    def begin(self, unit: int, job: UnitJob) -> None:
        """A worker has been started for a unit."""
        if job.watchdog:
            self._units[unit] = _Heard(job, self._clock())

    def heard(self, unit: int, where: str) -> None:
        """A unit's worker has reported."""
        if (one := self._units.get(unit)) is None:
            return
        one.at, one.where, one.reports = self._clock(), where, one.reports + 1
        if one.told:
            one.told = False
            self._say(f"{one.job.unit.label}: its worker{where} is back")

    def end(self, unit: int) -> None:
        """A unit's worker has ended."""
        self._units.pop(unit, None)

    def check(self) -> None:
        """Look after the silent units; call this often."""
        now, before = self._clock(), self._checked
        self._checked = now
        for one in self._units.values():
            often = one.job.watchdog / 4
            if now - before > often:  # the driver was suspended, or busy, and has not heard what was said
                one.at = max(one.at, now - often)
            patience = max(one.job.watchdog, START_S if one.reports < 2 else 0)
            if now - one.at >= patience and not one.told:
                one.told = True
                self._say(
                    f"{one.job.unit.label}: no sign of life from its worker{one.where} for {now - one.at:.0f} s; is "
                    "the process or its machine suspended? The launch waits for it"
                )
