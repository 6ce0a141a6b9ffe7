"""The lease: which process may write to a training's folder.

A process claims a training by creating ``attempts/<n>.json`` for the next number n. Of several processes, exactly one
succeeds. No earlier claim is removed first, so no rival can slip in between, or remove the new claim by mistake for the
old one. ``lease.json`` then names the owner. Every write reads it right before the file is renamed into place, and
stops if it names another process. So a process that was suspended while another took over (a closed laptop, a lost
network) stops. Should it be suspended in the microseconds between this check and the rename, it still cannot overwrite
its successor's files, because each attempt writes files of its own (`runners.store.versions`).
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import FencedError
from goal_core.basics.sealed_json import json_bytes
from runners.store.attempts import Attempt, AttemptFolder
from runners.store.heartbeat import DriverRecords, LeaseHeldError
from runners.store.provenance import gather
from runners.store.storage import LOCAL, Storage, read_json

_RIVALS = 50


class LeaseLostError(FencedError):
    """Another attempt has taken over this attempt's training. This attempt must stop without writing anything."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one attempt to write to a training's folder."""

    folder: Path
    launch_id: str
    attempt: int
    storage: Storage = LOCAL

    def check(self) -> None:
        """Check that this attempt still holds the lease.

        Raises:
            LeaseLostError: another attempt holds it.
        """
        if self._pointer() == (self.launch_id, self.attempt):
            return
        # The pointer may be damaged, or written late by a process suspended in its claim; the highest number decides.
        newest = AttemptFolder(self.folder, self.storage).newest()
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
        self.storage.replace(self.folder / "lease.json", json_bytes(content))

    def _pointer(self) -> tuple[str, int] | None:
        try:
            content = read_json(self.storage, self.folder / "lease.json") or {}
            return content["launch_id"], content["attempt"]
        except (DamagedError, KeyError):
            return None


def acquire(
    folder: Path,
    launch_id: str,
    drivers: DriverRecords,
    *,
    node: str = "",
    shared_by: int = 1,
    micro_batch: int = 0,
    units_per_gpu: int = 1,
) -> Lease:
    """Begin a new attempt at a training.

    It supersedes a running attempt of the same launch (the driver decided to retry), and one whose driver has ended.

    Args:
        folder: the training's folder; created if missing.
        launch_id: the launch that this attempt belongs to.
        drivers: the records of the store's drivers.
        node: Ray's id of this machine.
        shared_by: number of trainings that this process trains side by side.
        micro_batch: pairs that it encodes at a time; 0: whole batches.
        units_per_gpu: how many units share the GPU.

    Raises:
        LeaseHeldError: an attempt of another living driver is running; the message names it.
        LeaseLostError: another claim overtook this one before it was complete.
        StorageError: the folder cannot be written.
    """
    storage = drivers.storage
    attempts = AttemptFolder(folder, storage)
    storage.make_folder(attempts.folder)
    for _ in range(_RIVALS):
        newest = attempts.newest()
        if newest is not None:
            _refuse_if_held(folder, newest, launch_id, drivers)
        attempt = Attempt.begin(
            1 if newest is None else newest.n + 1,
            launch_id=launch_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            node=node,
            shared_by=shared_by,
            micro_batch=micro_batch,
            units_per_gpu=units_per_gpu,
            started=time.time(),
            provenance=gather(),
        )
        if attempts.create(attempt):
            lease = Lease(folder, launch_id, attempt.n, storage)
            _take_possession(lease, attempts)
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


def _take_possession(lease: Lease, attempts: AttemptFolder) -> None:
    lease.point_here()
    if attempts.numbers()[-1] != lease.attempt:
        raise LeaseLostError(f"attempt {lease.attempt} at {lease.folder} was overtaken while it began")
    for earlier in attempts.all()[:-1]:
        if earlier.outcome == "running":
            attempts.update(earlier.ending("lost", ended=None, reason="its process ended unexpectedly"))
    lease.storage.remove_leftovers(lease.folder)
    lease.storage.remove_leftovers(attempts.folder)
