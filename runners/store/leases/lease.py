"""The lease: which process may write to a training's folder.

A process claims a training by creating ``attempts/<n>.json`` for the next number n. Of several processes, exactly one
succeeds. No earlier claim is removed first, so no rival can slip in between, or remove the new claim by mistake for the
old one. The highest number is the owner. Every write reads it right before the file is renamed into place, and stops if
it is another's. So a process that was suspended while another took over (a closed laptop, a lost network) stops. Should
it be suspended in the microseconds between this check and the rename, it still cannot overwrite its successor's files,
because each attempt writes files of its own (`runners.store.trainings.files`).
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import remove_leftovers
from goal_sweep.goal_core.basics.errors import FencedError
from goal_sweep.runners.store.leases.heartbeat import DriverRecords, LeaseHeldError
from goal_sweep.runners.store.records.attempts import Attempt, AttemptFolder
from goal_sweep.runners.store.records.provenance import gather

_RIVALS = 50


class LeaseLostError(FencedError):
    """Another attempt has taken over this attempt's training. This attempt must stop without writing anything."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one attempt to write to a training's folder."""

    attempts: AttemptFolder
    launch_id: str
    attempt: int

    def check(self) -> None:
        """Check that this attempt still holds the lease.

        Raises:
            LeaseLostError: another attempt holds it.
        """
        newest, folder = self.attempts.newest(), self.attempts.folder.parent
        # A damaged record names no launch. Nobody else can have created it.
        if newest is not None and newest.n == self.attempt and newest.launch_id in (self.launch_id, ""):
            return
        owner = "nobody" if newest is None else f"attempt {newest.n} on {newest.host}"
        raise LeaseLostError(
            f"attempt {self.attempt} at {folder.parent.name}/{folder.name} has lost its lease to {owner}; "
            "what it was writing is discarded"
        )


def acquire(folder: Path, launch_id: str, drivers: DriverRecords, **how: Any) -> Lease:
    """Begin a new attempt at a training.

    It supersedes a running attempt of the same launch (the driver decided to retry), and one whose driver has ended.

    Args:
        folder: the training's folder; created if missing.
        launch_id: the launch that this attempt belongs to.
        drivers: the records of the store's drivers.
        **how: further fields of the attempt, which say where and how it trains.

    Raises:
        LeaseHeldError: an attempt of another living driver is running; the message names it.
        LeaseLostError: another claim overtook this one before it was complete.
        StorageError: the folder cannot be written.
    """
    attempts = AttemptFolder(folder, drivers.storage)
    drivers.storage.make_folder(attempts.folder)
    for _ in range(_RIVALS):
        newest = attempts.newest()
        if newest is not None:
            _refuse_if_held(folder, newest, launch_id, drivers)
        attempt = Attempt(
            n=1 if newest is None else newest.n + 1,
            launch_id=launch_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=time.time(),
            **how,
            **asdict(gather()),
        )
        if attempts.create(attempt):
            lease = Lease(attempts, launch_id, attempt.n)
            _take_possession(lease)
            return lease
    raise LeaseHeldError(f"too many processes are claiming {folder} at the same time; try again later")


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


def _take_possession(lease: Lease) -> None:
    lease.check()
    for earlier in lease.attempts.all()[:-1]:
        if earlier.outcome == "running":
            lease.attempts.update(earlier.ending("lost", ended=None, reason="its process ended unexpectedly"))
    for folder in (lease.attempts.folder.parent, lease.attempts.folder):
        remove_leftovers(folder)
