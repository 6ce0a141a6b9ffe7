"""The units that wait for a device, in the order in which they should start. It grows while units run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from runners.execution.worker import UnitJob


class UnitLine:
    """The units of one round: which wait, and which have ended for good.

    A unit is known by its number, which is its place in `jobs`.

    Args:
        jobs: the units that can start at once.
        follow: called with each unit that has ended for good; gives those that can start because of it.
    """

    def __init__(self, jobs: Sequence[UnitJob], follow: Callable[[UnitJob], Sequence[UnitJob]]) -> None:
        self.jobs: list[UnitJob] = []
        self.finished: set[int] = set()
        """Units that need no further start in this round."""
        self._follow = follow
        self._waiting: list[tuple[tuple[int, float], int]] = []
        self._unasked: list[int] = []
        """Units that have ended and of which nobody has asked yet what follows them."""
        self._add(jobs)

    def restart(self) -> None:
        """Let all units that have not ended wait again, because whoever ran them has stopped."""
        self._waiting = [(job.rank, unit) for unit, job in enumerate(self.jobs) if unit not in self.finished]
        heapq.heapify(self._waiting)

    def take(self) -> int | None:
        """The unit to start next: that of the lowest rank, then the earliest. None if none waits now."""
        return heapq.heappop(self._waiting)[1] if self._waiting else None

    def finish(self, unit: int) -> None:
        """Note that a unit has ended for good."""
        if unit not in self.finished:
            self.finished.add(unit)
            self._unasked.append(unit)

    def feed(self) -> None:
        """Ask what can start because of the units that have ended. Call this soon after `finish`."""
        while self._unasked:
            self._add(self._follow(self.jobs[self._unasked.pop(0)]))

    @property
    def is_over(self) -> bool:
        """Whether all units have ended, and nothing follows them."""
        return not self._unasked and len(self.finished) == len(self.jobs)

    def _add(self, jobs: Sequence[UnitJob]) -> None:
        for job in jobs:
            heapq.heappush(self._waiting, (job.rank, len(self.jobs)))
            self.jobs.append(job)
