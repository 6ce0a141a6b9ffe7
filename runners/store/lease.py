"""Who may write to a training's folder.

To claim is to create ``attempts/<n>.json`` for the next number n, which of several processes exactly one can.
Nothing is ever taken away first, so there is no moment at which a rival could slip in, or remove the new owner's claim
believing it the old one's. ``lease.json`` then points at the owner. Each write reads it again, right before the file
takes its final name, and stops when it names somebody else: a process that slept through its own succession
(a stopped laptop, a network that came back) cannot spoil what its successor wrote. What remains is the time
between that look and the rename, some microseconds; the look is repeated after the rename, so such a process
stops there, and its successor's next write replaces the file.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from goal_core import atomic
from goal_core.atomic import DamagedError, json_bytes, read_json, remove_leftovers, replace_bytes
from goal_core.errors import FencedError
from runners.store.attempts import Attempt, AttemptFolder
from runners.store.heartbeat import DriverRecords, LeaseHeldError
from runners.store.provenance import gather

_RIVALS = 50


class LeaseLostError(FencedError):
    """Another attempt has taken over what this one was working on; it must stop and leave no trace."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one attempt to write to a training's folder."""

    folder: Path
    launch_id: str
    attempt: int

    def check(self) -> None:
        """Make sure that the lease is still this attempt's.

        Raises:
            LeaseLostError: it is not.
        """
        if self._pointer() == (self.launch_id, self.attempt):
            return
        # The pointer may be damaged, or late from a claimant that stopped halfway; the highest number decides.
        newest = AttemptFolder(self.folder).newest()
        if newest is None or (newest.launch_id, newest.n) != (self.launch_id, self.attempt):
            owner = "nobody" if newest is None else f"attempt {newest.n} on {newest.host}"
            raise LeaseLostError(
                f"attempt {self.attempt} at {self.folder.parent.name}/{self.folder.name} has lost its lease "
                f"to {owner}; what it was writing is discarded"
            )
        self.point_here()

    def point_here(self) -> None:
        """Write the pointer that `check` reads."""
        content = {"launch_id": self.launch_id, "attempt": self.attempt}
        replace_bytes(self.folder / "lease.json", json_bytes(content))

    def _pointer(self) -> tuple[str, int] | None:
        try:
            content = read_json(self.folder / "lease.json") or {}
            return content["launch_id"], content["attempt"]
        except (DamagedError, KeyError):
            return None


def acquire(folder: Path, launch_id: str, drivers: DriverRecords) -> Lease:
    """Begin a new attempt at a training.

    An attempt of the same launch is superseded (the driver decided to try again); so is one whose driver has ended.

    Args:
        folder: the training's folder; made when missing.
        launch_id: the launch that this attempt belongs to.
        drivers: the records of the store's drivers.

    Raises:
        LeaseHeldError: an attempt of a living driver is at work; the message names it.
        LeaseLostError: another claim overtook this one before it was complete.
        StorageError: the disk refuses.
    """
    attempts = AttemptFolder(folder)
    with atomic.storage_errors(folder, "create"):
        attempts.folder.mkdir(parents=True, exist_ok=True)
    for _ in range(_RIVALS):
        newest = attempts.newest()
        if newest is not None:
            _refuse_if_held(folder, newest, launch_id, drivers)
        attempt = Attempt.begin(
            1 if newest is None else newest.n + 1,
            launch_id=launch_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=time.time(),
            provenance=gather(),
        )
        if attempts.create(attempt):
            lease = Lease(folder, launch_id, attempt.n)
            _take_possession(lease, attempts)
            return lease
    raise LeaseHeldError(f"too many processes claim {folder} at the same time")


def _refuse_if_held(folder: Path, newest: Attempt, launch_id: str, drivers: DriverRecords) -> None:
    if newest.outcome != "running" or newest.launch_id == launch_id:
        return
    holder = drivers.state(newest.launch_id)
    if holder is not None and holder.process.exists() is None:
        holder = drivers.state(newest.launch_id, now=drivers.file_time())
    if holder is None or not holder.alive:
        return
    raise LeaseHeldError(
        f"{folder.parent.name}/{folder.name} is being trained by {holder.describe()}, attempt {newest.n} "
        f"on {newest.host} (pid {newest.pid})"
    )


def _take_possession(lease: Lease, attempts: AttemptFolder) -> None:
    lease.point_here()
    if attempts.numbers()[-1] != lease.attempt:
        raise LeaseLostError(f"attempt {lease.attempt} at {lease.folder} was overtaken while it began")
    for earlier in attempts.all()[:-1]:
        if earlier.outcome == "running":
            attempts.update(earlier.ending("lost", ended=None, reason="its process ended without a word"))
    remove_leftovers(lease.folder)
    remove_leftovers(attempts.folder)
