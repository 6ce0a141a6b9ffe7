"""The numbered attempts at a training: the claim of the process that trains it, and what became of it.

``attempts/<n>.json`` is created exclusively for the next number n, so of several processes one succeeds. Its process
renews it while it trains. The highest number is the owner: whoever has a lower one must not write any more.
An attempt that is `running` holds the training as long as its process lives. On the same machine that is seen at once,
whatever any clock says; elsewhere by the record's age, by the clock of the file system that holds it.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.basics.machine import is_taken, machine_identity
from goal_sweep.runners.store.provenance import Provenance, gather
from goal_sweep.runners.store.storage import LOCAL, Storage, read_record

STALE_S = 120.0
"""Age at which the claim of another machine counts as given up. Its process renews it every `RENEW_S`."""
RENEW_S = 20.0
_RECORD = re.compile(r"([1-9][0-9]{0,5})\.json")
Outcome = Literal["running", "done", "failed", "interrupted", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Provenance):
    """One attempt at a training, with the provenance of what it computes."""

    n: int
    launch: str
    user: str = ""
    host: str = ""
    machine: str = ""
    """The kernel's boot and its namespace of process numbers, outside of which `pid` means nothing."""
    pid: int = 0
    process_started: str = ""
    """Clock ticks from boot to the start of the process, which tells it from a later one of the same number."""
    started: float
    """Seconds since 1970."""
    ended: float | None = None
    """Seconds since 1970; None while it runs, or if its end was not observed."""
    outcome: Outcome = "running"
    reason: str = ""
    """Why it failed or was interrupted, in one line."""
    trace: str = ""
    counted: bool = False
    """Whether it counts against `resources.max_attempts`."""
    final: bool = False
    """Whether another attempt would end alike, so that none is made."""
    progressed: bool = False
    """Whether it had saved a state when it ended. Failures before it no longer count."""
    state_before: int = 0
    """When the state that it began with was written (ns since 1970); 0 without one."""
    shared_by: int = 1
    """Trainings that its process trained side by side, this one included."""

    @classmethod
    def of_this_process(cls, n: int, launch: str, **how: Any) -> Attempt:
        """An attempt that begins now; `how` has further fields."""
        pid = os.getpid()
        return cls(
            n=n, launch=launch, user=user_name(), host=socket.gethostname(), machine=machine_identity(), pid=pid,
            process_started=_start_of(pid) or "", started=time.time(), **how, **asdict(gather()),
        )  # fmt: skip

    def ending(self, outcome: Outcome, *, reason: str = "", **how: Any) -> Attempt:
        """The same attempt, ended; `how` has other fields."""
        return replace(self, outcome=outcome, reason=" ".join(reason.split()), **how)

    def process_lives(self) -> bool | None:
        """Whether its process runs; None where that cannot be seen: on another machine, or hidden from this user."""
        if self.machine != machine_identity():
            return None
        started = _start_of(self.pid)
        if started is None:
            return False
        return started == self.process_started if started and self.process_started else None

    def describe(self) -> str:
        """Who made it, for a message."""
        return f"{self.user}@{self.host} (pid {self.pid})"


class AttemptFolder:
    """The attempts at a training, in its folder. For reading, nothing needs to exist."""

    def __init__(self, folder: Path, storage: Storage = LOCAL) -> None:
        self.folder, self._storage = folder / "attempts", storage

    def numbers(self) -> list[int]:
        """The numbers in use, ascending."""
        found = (_RECORD.fullmatch(path.name) for path in self._storage.entries(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def read(self, n: int) -> Attempt | None:
        """One attempt; None if there is none of that number. A damaged record is that of a lost attempt."""
        path = self._path(n)
        try:
            attempt = read_record(self._storage, path, Attempt)
            if attempt is not None and attempt.n != n:
                raise DamagedError(f"{self._storage.shown(path)} is damaged: it is that of attempt {attempt.n}")
            return attempt
        except DamagedError as error:
            return Attempt(n=n, launch="", started=self._storage.seen(path), outcome="lost", reason=str(error))

    def all(self) -> list[Attempt]:
        """Every attempt, in order."""
        return [attempt for attempt in map(self.read, self.numbers()) if attempt is not None]

    def newest(self) -> Attempt | None:
        """The last attempt; None before the first."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def is_held(self, attempt: Attempt, *, exactly: bool = False) -> bool:
        """Whether an attempt holds the training.

        Args:
            exactly: ask for the storage's time, which writes a probe; else this machine's clock is read.
        """
        if attempt.outcome != "running":
            return False
        lives = attempt.process_lives()
        if lives is None:
            now = self._storage.now(self.folder) if exactly else time.time()
            age = now - self._storage.seen(self._path(attempt.n))
            lives = abs(age) <= STALE_S  # a record from the future is no sign of life either
        return lives

    def create(self, attempt: Attempt) -> bool:
        """Claim an attempt's number; False if another process was faster."""
        return self._storage.create(self._path(attempt.n), json_bytes(asdict(attempt)))

    def write(self, attempt: Attempt) -> None:
        """Write an attempt's record again, which also renews it. For its owner, or whoever saw its process end."""
        self._storage.replace(self._path(attempt.n), json_bytes(asdict(attempt)))

    def _path(self, n: int) -> Path:
        return self.folder / f"{n}.json"


def counted_failures(attempts: Iterable[Attempt]) -> int:
    """How many of a training's attempts, in order, failed since a state was saved, and count against `max_attempts`."""
    count = 0
    for attempt in attempts:
        count = (0 if attempt.progressed else count) + attempt.counted
    return count


def user_name() -> str:
    """The name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user number that is in no password file
        return f"uid{os.getuid()}"


def _start_of(pid: int) -> str | None:
    """Clock ticks from boot to the start of a process; None if it has ended, empty if this user may not see it."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if is_taken(pid) else None
    return None if state in ("Z", "X") else rest[18]
