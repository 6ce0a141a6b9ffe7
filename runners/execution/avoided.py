"""Which machines are left alone, because nothing succeeds there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runners.execution.capacity import Machine, Resources

FAILURES = 3
"""Failures in a row, with no success between them, after which a machine is left alone."""
REST_S = 1800.0
"""Seconds for which a machine is left alone at first. Each time doubles it."""


@dataclass(slots=True)
class _Record:
    """What is known of one machine."""

    failed: list[int] = field(default_factory=list)
    """The units that failed there since the last success, in order."""
    until: float = 0.0
    """Until when it is left alone."""
    times: int = 0
    """How often it has been left alone."""
    unfit: str = ""
    """What it lacks that the units need."""


class AvoidedMachines:
    """Keeps units away from machines on which everything fails, as long as others can take them.

    A machine is left alone after three failures in a row, of two different units at least: a single unit that fails
    again and again may be at fault itself. One that lacks the data, the store or the code is left alone at once. After
    a rest it gets another chance.

    Args:
        need: the resources of a unit.
        say: shows a line to the user.
        clock: seconds; for tests.
    """

    def __init__(
        self, need: Resources, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._need, self._say, self._clock = need, say, clock
        self._records: dict[str, _Record] = {}
        self.machines: Sequence[Machine] = ()
        """The machines alive; the owner keeps them up to date."""

    def now(self) -> tuple[str, ...]:
        """The ids of the machines to avoid now, in order. At least one large enough machine is never avoided."""
        resting = {machine for machine, record in self._records.items() if record.until > self._clock()}
        return tuple(sorted(resting)) if self._others() else ()

    def succeeded(self, machine: str) -> None:
        """An epoch of a unit ended on a machine."""
        if machine in self._records:
            self._records[machine] = _Record(times=self._records[machine].times)

    def failed(self, machine: str, unit: int, reason: str) -> list[int]:
        """A unit failed on a machine without an epoch.

        Returns:
            The units that failed there, if it is left alone from now on, for they are not to blame; empty if not.
        """
        record = self._records.setdefault(machine, _Record())
        if record.until > self._clock():
            return [unit]
        record.failed.append(unit)
        units = sorted(set(record.failed))
        # One failure speaks against a machine that has been left alone before.
        is_suspect = bool(record.times) or (len(record.failed) >= FAILURES and len(units) > 1)
        if not is_suspect or not self._others(machine):
            return []
        self._rest(machine, record, f"{len(record.failed)} failures in a row and no success there, the last: {reason}")
        return units

    def unfit(self, machine: str, reason: str) -> None:
        """A machine lacks what the units need; the reason names what."""
        record = self._records.setdefault(machine, _Record())
        new, record.unfit = record.until <= self._clock(), reason
        self._rest(machine, record, reason, say=new and bool(self._others(machine)))

    def all_unfit(self) -> str:
        """Why no machine can train any unit, one reason for each; empty while one might."""
        large = [machine for machine in self.machines if machine.fits(self._need)]
        records = [self._records.get(machine.id, _Record()) for machine in large]
        if not all(record.unfit and record.until > self._clock() for record in records):
            return ""
        return "; ".join(dict.fromkeys(record.unfit for record in records))

    def _rest(self, machine: str, record: _Record, reason: str, *, say: bool = True) -> None:
        rest = REST_S * 2**record.times
        record.failed, record.until, record.times = [], self._clock() + rest, record.times + 1
        if say:
            name = next((one.name for one in self.machines if one.id == machine), machine[:12])
            self._say(f"machine {name} is left alone for {rest / 60:.0f} min: {reason}")

    def _others(self, machine: str = "") -> list[Machine]:
        """The machines beside one that are large enough and not left alone."""
        now, fresh = self._clock(), _Record()
        return [
            one
            for one in self.machines
            if one.id != machine and one.fits(self._need) and self._records.get(one.id, fresh).until <= now
        ]
