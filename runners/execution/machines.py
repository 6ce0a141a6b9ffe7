"""The machines of a cluster while units run: which are left alone, and whether there is room for a unit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.runners.execution.capacity import Machine, Resources, kinds_of

BUSY_S = 90.0
"""Seconds without a running unit after which machines that could hold one count as taken by others."""
FAILURES = 3
"""Failures in a row, with no success between them, after which a machine is left alone."""
REST_S = 1800.0
"""Seconds for which a machine is left alone."""


class ClusterMachines:
    """Keeps units away from machines on which everything fails, and tells the user when there is no room for a unit.

    A machine is left alone after three failures in a row, of two different units at least: a single unit that fails
    again and again may be at fault itself. One that lacks the data, the store or the code is left alone at once. After
    a rest it gets another chance. All this only as long as other machines can take the units.

    Args:
        need: the resources of a unit.
        say: shows a line to the user.
        clock: seconds; for tests.
    """

    def __init__(
        self, need: Resources, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._need, self._say, self._clock = need, say, clock
        self._is_told = False
        """Whether the user knows that there is no room."""
        self._idle_since = clock()
        """Since when no unit has run although there is a machine for one."""
        self._failed: dict[str, list[int]] = defaultdict(list)
        """The units that failed on each machine since the last success there, in order."""
        self._until: dict[str, float] = {}
        """Until when each machine is left alone."""
        self._unfit: dict[str, str] = {}
        """What machines lack that the units need."""
        self.machines: Sequence[Machine] = ()
        """The machines alive, as `check` saw them last."""

    def avoided(self) -> tuple[str, ...]:
        """The ids of the machines to avoid now, in order. At least one large enough machine is never avoided."""
        return tuple(sorted(filter(self._rests, self._until))) if self._others() else ()

    def succeeded(self, machine: str) -> None:
        """An epoch of a unit ended on a machine."""
        for known in (self._failed, self._until, self._unfit):
            known.pop(machine, None)

    def failed(self, machine: str, unit: int, reason: str) -> list[int]:
        """A unit failed on a machine without an epoch.

        Returns:
            The units that failed there, if it is left alone from now on, for they are not to blame; empty if not.
        """
        if self._rests(machine):
            return [unit]
        failed = self._failed[machine]
        failed.append(unit)
        units = sorted(set(failed))
        if len(failed) < FAILURES or len(units) == 1 or not self._others(machine):
            return []
        self._rest(machine, f"{len(failed)} failures in a row and no success there, the last: {reason}")
        return units

    def unfit(self, machine: str, reason: str) -> None:
        """A machine lacks what the units need; the reason names what."""
        self._unfit[machine] = reason
        if not self._rests(machine):
            self._rest(machine, reason)

    def check(self, machines: Sequence[Machine], *, running: int) -> list[Machine]:
        """Look at the cluster; call this every few seconds while units are left.

        Args:
            machines: the machines alive.
            running: how many units run.

        Returns:
            Those that are large enough for a unit.

        Raises:
            DeviceError: each of them lacks what the units need.
        """
        self.machines, now = machines, self._clock()
        large = [machine for machine in machines if machine.fits(self._need)]
        if large and all(self._rests(machine.id) and machine.id in self._unfit for machine in large):
            reasons = "; ".join(dict.fromkeys(self._unfit[machine.id] for machine in large))
            raise DeviceError(f"no machine of the cluster can train this sweep: {reasons}")
        if running or not large:
            self._idle_since = now
        problem = ""
        if not large:
            problem = f"the cluster has {kinds_of(machines)} now"
        elif now - self._idle_since >= BUSY_S:
            free = {machine.id for machine in large}.difference(self.avoided())
            problem = f"{len(free)} machines of that size are taken by others, or starting"
        if problem and not self._is_told:
            self._say(f"waiting for capacity: a unit needs {self._need}, and {problem}")
        elif self._is_told and not problem:
            self._say("there is room for a unit again")
        self._is_told = bool(problem)
        return large

    def _rests(self, machine: str) -> bool:
        return self._until.get(machine, 0.0) > self._clock()

    def _rest(self, machine: str, reason: str) -> None:
        self._until[machine] = self._clock() + REST_S
        self._failed.pop(machine, None)
        if self._others(machine):  # where it is the last, there is nothing else to say than `all_unfit`
            name = next((one.name for one in self.machines if one.id == machine), machine[:12])
            self._say(f"machine {name} is left alone for {REST_S / 60:.0f} min: {reason}")

    def _others(self, machine: str = "") -> bool:
        """Whether a machine beside one is large enough and not left alone."""
        return any(one.id != machine and one.fits(self._need) and not self._rests(one.id) for one in self.machines)
