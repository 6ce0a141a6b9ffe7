"""A unit as it is sent to a worker, and the line of those that wait for a device. It grows while units run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from goal_core.training import UnitPlan
from sweeps import Training, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit as it is sent to a worker."""

    unit: Unit
    plan: UnitPlan
    """The same unit in the form that the trainer takes."""
    store: str
    launch_id: str
    code: str
    """Hash of the driver's code; see `runners.execution.inputs.code_digest`."""
    software: Mapping[str, str]
    """The driver's versions; see `runners.execution.inputs.software`."""
    max_attempts: Mapping[Training, int]
    """Number of charged attempts allowed for each training, including those of earlier launches."""
    watchdog: int
    """Seconds without a sign of life after which the unit counts as hung; 0 disables the check."""
    rank: tuple[int, float] = (0, 0.0)
    """Units start in the order of their ranks, as far as they wait for a device."""
    shares: bool = False
    """Whether other launches may train units of the same sweep. One that another holds is then left to it whole."""


class UnitLine:
    """The units of one round: which wait, and which have ended for good.

    A unit is known by its number, which is its place in `jobs`.

    Args:
        jobs: the units that can start at once.
        follow: called with each unit that has ended for good; gives those that can start because of it.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        jobs: Sequence[UnitJob],
        follow: Callable[[UnitJob], Sequence[UnitJob]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.jobs: list[UnitJob] = list(jobs)
        self.finished: set[int] = set()
        """Units that need no further start in this round."""
        self._follow, self._clock = follow, clock
        self._unasked: list[int] = []
        """Units that have ended and of which nobody has asked yet what follows them."""
        self.restart()

    def restart(self) -> None:
        """Let all units that have not ended wait again, because whoever ran them has stopped."""
        self._waiting = {unit: 0.0 for unit in range(len(self.jobs)) if unit not in self.finished}
        """The units that wait, and when each may start at the earliest."""

    def take(self) -> int | None:
        """The unit to start next: that of the lowest rank, then the earliest. None if none waits now."""
        now = self._clock()
        ready = [unit for unit, start in self._waiting.items() if start <= now]
        unit = min(ready, key=lambda unit: (self.jobs[unit].rank, unit), default=None)
        if unit is not None:
            del self._waiting[unit]
        return unit

    def put_back(self, unit: int, pause: float) -> None:
        """Let a unit start again, after some seconds."""
        self._waiting[unit] = self._clock() + pause

    def finish(self, unit: int) -> None:
        """Note that a unit has ended for good."""
        if unit not in self.finished:
            self.finished.add(unit)
            self._unasked.append(unit)

    def ask(self) -> None:
        """Ask what can start because of the units that have ended. Call this soon after `finish`."""
        while self._unasked:
            for job in self._follow(self.jobs[self._unasked.pop(0)]):
                self._waiting[len(self.jobs)] = 0.0
                self.jobs.append(job)

    @property
    def is_over(self) -> bool:
        """Whether all units have ended, and nothing follows them."""
        return not self._unasked and len(self.finished) == len(self.jobs)
