"""What ended a worker, as far as Ray says it, and how long its unit waits before it starts again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["died", "memory", "machine", "unfit"]
"""`memory`: Ray ended the worker because the machine's memory was nearly full. `machine`: its machine is gone. `unfit`:
its machine lacks what the unit needs. `died`: anything else."""
MOST = {"died": 8, "memory": 12}
"""How often a unit's worker may die without progress, before it begins an attempt (`died`) or at all (`memory`); then
this launch gives the unit up."""
PAUSES_S = {"died": (1.0, 60.0), "memory": (10.0, 300.0)}
"""First and longest pause before a restart. Every such death doubles it."""
MEMORY = "Ray ended its worker, because the memory of the machine was nearly full"
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
    last, ids = lines[-1] if lines else "its worker died", frozenset(_ID.findall(text))
    if "UnfitMachineError" in text:
        return Death(kind="unfit", line=last, ids=ids)
    if _MEMORY.search(text):
        return Death(kind="memory", line=MEMORY, ids=ids)
    return Death(kind="machine" if _MACHINE.search(text) else "died", line=last, ids=ids)


def pause_after(kind: Kind, count: int) -> float | None:
    """Seconds that a unit waits after so many deaths of a kind in a row; None where it is given up."""
    if kind not in MOST:
        return 0.0
    first, longest = PAUSES_S[kind]
    return min(first * 2.0 ** (count - 1), longest) if count < MOST[kind] else None
