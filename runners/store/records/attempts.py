"""The numbered attempts at a training: who made each, where, with which code, and how it ended.

``attempts/<n>.json`` is created once and belongs to its attempt until the next number exists. If an attempt is still
`running` although its driver has ended, it was cut off through no fault of the cell (a killed driver, a lost node).
The next claim records it as `lost`, which does not count against the cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.store.records.provenance import Provenance
from goal_sweep.runners.store.records.result_content import Count, Seconds
from goal_sweep.runners.store.storage.folders import LOCAL, Storage, read_record

_Launch = Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f\x7f-\x9f]{0,200}$")]
"""The id of a launch, which is the name of its driver's record."""
_RECORD = re.compile(r"([1-9][0-9]{0,5})\.json")
Outcome = Literal["running", "done", "failed", "interrupted", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Provenance):
    """One attempt at a training, with the provenance of what it computes."""

    n: Count
    """Number of the attempt, from 1."""
    launch_id: _Launch
    host: str
    pid: int
    started: Seconds
    """Seconds since 1970."""
    ended: Seconds | None = None
    """Seconds since 1970; None while it runs or if its end was not observed."""
    outcome: Outcome = "running"
    reason: str = ""
    """Why it failed or was interrupted, in one line."""
    trace: str = ""
    charged: bool = False
    """Whether it counts against the cell's `max_attempts`."""
    final: bool = False
    """Whether another attempt is pointless, even if some are left."""
    shared_by: Count = 1
    """Number of trainings that its process trained side by side, this one included."""
    node: str = ""
    """Ray's id of the machine; empty if it ran without Ray."""
    died: bool = False
    """Whether its process died or hung, as far as that was noticed."""
    progressed: bool = False
    """Whether it had saved a state of its own when it ended. Then the deaths before it no longer count."""
    micro_batch: int = 0
    """Pairs that it encoded at a time; 0: whole batches."""
    units_per_gpu: int = 1
    """How many units of its kind shared a GPU."""
    out_of_memory: bool = False
    """Whether it ended because memory ran out, and fewer units on its GPU may fit, or, where it had one for itself,
    fewer pairs at a time."""
    memory_mb: float = 0.0
    """Most memory of its GPU in megabytes that torch reserved in its process; 0 where it used none."""

    def ending(self, outcome: Outcome, *, ended: float | None, reason: str = "", **how: Any) -> Attempt:
        """The same attempt, ended. It is charged if it failed, unless ``how``, other fields of it, say otherwise.

        What was noticed before of its process and its progress stays.
        """
        how = {"charged": outcome == "failed", **how}
        how |= {name: getattr(self, name) or how.get(name, False) for name in ("died", "progressed")}
        return replace(self, outcome=outcome, ended=ended, reason=" ".join(reason.split()), **how)


class AttemptFolder:
    """The attempts at a training.

    Args:
        folder: the training's folder; attempts are in ``attempts/`` below it. For reading, neither needs to exist.
        storage: what keeps it.
    """

    def __init__(self, folder: Path, storage: Storage = LOCAL) -> None:
        self.folder, self._storage = folder / "attempts", storage

    def path(self, n: int) -> Path:
        """The path of an attempt's record."""
        return self.folder / f"{n}.json"

    def numbers(self) -> list[int]:
        """The numbers in use, ascending."""
        found = (_RECORD.fullmatch(path.name) for path in self._storage.entries(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def read(self, n: int) -> Attempt | None:
        """Read one attempt; None if there is none of that number.

        A damaged record is read as a lost attempt, so that it does not prevent the next attempt.
        """
        path = self.path(n)
        try:
            attempt = read_record(self._storage, path, Attempt)
            if attempt is not None and attempt.n != n:
                raise DamagedError(f"{self._storage.shown(path)} is damaged: it is that of attempt {attempt.n}")
            return attempt
        except DamagedError as error:
            seen = self._storage.seen(path)
            return Attempt(n=n, launch_id="", host="", pid=0, started=seen, outcome="lost", reason=str(error))

    def all(self) -> list[Attempt]:
        """Every attempt, in order."""
        return [attempt for attempt in map(self.read, self.numbers()) if attempt is not None]

    def newest(self) -> Attempt | None:
        """The last attempt, or None before the first."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def create(self, attempt: Attempt) -> bool:
        """Claim the attempt's number (see `runners.store.leases`). Returns False if another process was faster."""
        return self._storage.create(self.path(attempt.n), json_bytes(asdict(attempt)))

    def update(self, attempt: Attempt) -> None:
        """Rewrite an attempt's record. The caller must hold the lease."""
        self._storage.replace(self.path(attempt.n), json_bytes(asdict(attempt)))


def was_cut_off(attempt: Attempt) -> bool:
    """Whether an attempt ended without an outcome of its own: its process runs no more, or its watchdog ended it."""
    return attempt.outcome == "running" or (attempt.outcome == "lost" and attempt.died)


def charged_failures(attempts: Iterable[Attempt]) -> int:
    """Count the attempts that count against `max_attempts`, of attempts in order.

    Deaths and hangs of the process count only as long as no progress lies between them.
    """
    errors = deaths = 0
    for attempt in attempts:
        if attempt.progressed:
            deaths = 0
        if attempt.charged and attempt.died:
            deaths += 1
        elif attempt.charged:
            errors += 1
    return errors + deaths
