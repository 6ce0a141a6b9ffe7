"""What ended a worker, as far as Ray says it, and how long its unit waits before it starts again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["died", "memory", "machine", "unfit"]
"""`memory`: Ray ended the worker because the machine's memory was nearly full. `machine`: its machine is gone. `unfit`:
its machine lacks what the unit needs. `died`: anything else."""
IDLE_DEATHS = 8
"""How often in a row a unit's worker may die before it begins an attempt; then this launch gives the unit up."""
MEMORY_DEATHS = 12
"""How often in a row Ray may end a unit's worker for want of memory; then this launch gives the unit up."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
MEMORY_PAUSE_S, LONGEST_MEMORY_PAUSE_S = 10.0, 300.0
"""First and longest pause before a restart. Every death without progress doubles it."""
UNFIT = "UnfitMachineError"
_MEMORY = re.compile(r"OutOfMemoryError|memory monitor|running low on memory|Ray killed this worker")
_MACHINE = re.compile(r"[Nn]ode (?:has )?died|node (?:has been |is )?(?:terminated|unreachable)|NodeDiedError|raylet")
_ID = re.compile(r"\b[0-9a-f]{56}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a worker that was not to end."""

    kind: Kind
    line: str
    """What Ray says of it, in one line."""
    ids: frozenset[str] = frozenset()
    """Ids of machines, and of other things, that Ray mentions."""


def read_death(text: str) -> Death:
    """Read the error that Ray Tune keeps of a failed trial.

    Args:
        text: the traceback.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "its worker died"
    ids = frozenset(_ID.findall(text))
    if UNFIT in text:
        return Death(kind="unfit", line=last, ids=ids)
    if _MEMORY.search(text):
        line = "Ray ended its worker, because the memory of the machine was nearly full"
        return Death(kind="memory", line=line, ids=ids)
    return Death(kind="machine" if _MACHINE.search(text) else "died", line=last, ids=ids)


@dataclass(slots=True)
class _Count:
    idle: int = 0
    """Deaths in a row before an attempt began."""
    memory: int = 0
    """Deaths in a row for want of memory."""


@dataclass(slots=True)
class Deaths:
    """Counts the deaths of each unit's workers, and says what follows."""

    _counts: dict[int, _Count] = field(default_factory=dict)

    def pause(self, unit: int, death: Death, *, began: bool, progressed: bool) -> float | None:
        """Note a death. Returns the seconds to wait before the unit starts again; None where it is given up.

        Args:
            unit: number of the unit.
            death: how its worker ended.
            began: whether the worker had begun an attempt.
            progressed: whether an epoch ended since the unit started.
        """
        count = self._counts.setdefault(unit, _Count())
        if progressed:
            count.idle = count.memory = 0
        if death.kind in ("unfit", "machine"):
            return 0.0
        if death.kind == "memory":
            count.memory += 1
            pause = min(MEMORY_PAUSE_S * 2.0 ** (count.memory - 1), LONGEST_MEMORY_PAUSE_S)
            return pause if count.memory < MEMORY_DEATHS else None
        count.memory = 0
        count.idle = 0 if began else count.idle + 1
        if count.idle >= IDLE_DEATHS:
            return None
        return 0.0 if began else min(FIRST_PAUSE_S * 2.0 ** (count.idle - 1), LONGEST_PAUSE_S)
