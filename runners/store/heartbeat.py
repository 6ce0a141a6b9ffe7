"""Which launches are at work on a store: one small file each, renewed by a heartbeat.

A launch is one run of `goal-sweep launch`. Its record says who and where it is; every attempt on a cell names its
launch, so one heartbeat keeps hundreds of leases alive. Whether a launch lives is decided thus:

1. its record is gone: it has ended;
2. its process is of this machine: it lives exactly as long as the process does, whatever any clock says, so a
   killed driver is succeeded at once and a stopped one is never overrun;
3. otherwise it lives while its record is no older than the time to live. Ages are differences between file times that
   one file system gave, so clocks of different machines need not agree. A record from the future by more than
   the time to live counts as dead: after its clock was set back, a living launch renews within seconds.
   (`status`, which writes nothing, compares with this machine's clock instead.)
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from goal_core.atomic import DamagedError, StorageError, json_bytes, read_json, replace_bytes, storage_errors
from goal_core.errors import GoalError
from runners.store.process import ProcessIdentity

_log = logging.getLogger(__name__)


class LeaseHeldError(GoalError):
    """A living launch is at work on what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverState:
    """What a store tells of one launch."""

    launch_id: str
    process: ProcessIdentity
    sweep: str
    alive: bool
    age: float
    """Seconds since its last sign of life."""

    def describe(self) -> str:
        """Who it is, where, and how recently it was seen, for messages."""
        return (
            f"{self.process.user}@{self.process.host} (pid {self.process.pid}, sweep {self.sweep}, "
            f"last sign of life {max(self.age, 0):.0f} s ago)"
        )


class DriverRecords:
    """The launch records of a store, for reading.

    Args:
        folder: ``STORE/launches``; need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def state(self, launch_id: str, *, now: float | None = None) -> DriverState | None:
        """One launch, or None when it has ended.

        Args:
            launch_id: as in an attempt's record.
            now: the file system's time as `file_time` gives it; without it, this machine's clock.
        """
        path = self.folder / f"{launch_id}.json"
        try:
            record = read_json(path)
            seen = path.stat().st_mtime
        except (DamagedError, FileNotFoundError):
            return None
        if record is None:
            return None
        process = ProcessIdentity.from_json(record)
        age = (time.time() if now is None else now) - seen
        exists = process.exists()
        alive = abs(age) <= float(record.get("ttl", 60)) if exists is None else exists
        return DriverState(
            launch_id=launch_id, process=process, sweep=str(record.get("sweep", "?")), alive=alive, age=age
        )

    def all(self, *, now: float | None = None) -> list[DriverState]:
        """Every launch that left a record, oldest name first."""
        found = (self.state(path.stem, now=now) for path in sorted(self.folder.glob("*.json")))
        return [state for state in found if state is not None]

    def planned(self, launch_id: str) -> frozenset[str]:
        """The stage keys that a launch set out to train."""
        try:
            return frozenset((self.folder / f"{launch_id}.keys").read_text().split())
        except OSError:
            return frozenset()

    def bury(self, launch_id: str) -> None:
        """Remove the record of a launch, so that every machine sees at once that it has ended."""
        for suffix in ("keys", "json"):
            with contextlib.suppress(OSError):
                (self.folder / f"{launch_id}.{suffix}").unlink()

    def file_time(self) -> float:
        """The time of the store's own file system, in seconds; it differs from ours on network folders."""
        probe = self.folder / f".clock-{secrets.token_hex(4)}.tmp"
        with storage_errors(probe, "write"):
            probe.touch()
            try:
                return probe.stat().st_mtime
            finally:
                probe.unlink(missing_ok=True)


class Heartbeat:
    """This driver's presence on a store, from `start` to `close`; also a context manager.

    Args:
        folder: ``STORE/launches``; must exist.
        sweep: the sweep's name, for others to read.
        ttl: seconds without a heartbeat after which other machines may take over.
        renew: seconds between heartbeats.
    """

    def __init__(self, folder: Path, sweep: str, *, ttl: float = 60.0, renew: float = 10.0) -> None:
        self._launches = DriverRecords(folder)
        self._process = ProcessIdentity.of_this_process()
        self._content: dict[str, Any] = {
            **self._process.to_json(),
            "sweep": sweep,
            "ttl": ttl,
            "started": time.time(),
        }
        self._renew = renew
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="goal-sweep heartbeat", daemon=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.id = f"{stamp}-{self._process.pid}-{secrets.token_hex(4)}"

    def start(self, stage_keys: Iterable[str] = ()) -> None:
        """Announce what will be trained, and refuse to begin when a living launch is at it already.

        Args:
            stage_keys: the stage keys that this launch means to train.

        Raises:
            LeaseHeldError: a living launch planned some of them; the message names it.
            StorageError: the store cannot be written.
        """
        keys = frozenset(stage_keys)
        for tries_left in (2, 1, 0):
            replace_bytes(self._launches.folder / f"{self.id}.keys", "\n".join(sorted(keys)).encode())
            self._write()
            rival = self._rival(keys)
            if rival is None:
                self._thread.start()
                return
            self._launches.bury(self.id)
            # Two launches begun in the same instant see each other and both step back; chance decides who returns.
            if not tries_left or time.time() - self._started(rival) > 5:
                raise LeaseHeldError(self._refusal(rival, keys))
            time.sleep(random.uniform(0.1, 1.5))

    def close(self) -> None:
        """End the heartbeat and take the record away; what this launch left unfinished is free for others."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._launches.bury(self.id)

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rival(self, keys: frozenset[str]) -> DriverState | None:
        for other in self._launches.all(now=self._launches.file_time()):
            if other.launch_id == self.id:
                continue
            if not other.alive:
                # Only the dead driver's own machine can tell at once; with the record gone, workers elsewhere know too.
                self._launches.bury(other.launch_id)
            elif keys & self._launches.planned(other.launch_id):
                return other
        return None

    def _refusal(self, rival: DriverState, keys: frozenset[str]) -> str:
        shared = len(keys & self._launches.planned(rival.launch_id))
        return (
            f"{shared} of the {len(keys)} trainings asked for already belong to {rival.describe()}; "
            f"wait for it to end, or stop it there with: kill {rival.process.pid}"
        )

    def _started(self, other: DriverState) -> float:
        try:
            record = read_json(self._launches.folder / f"{other.launch_id}.json") or {}
        except DamagedError:
            record = {}
        return float(record.get("started", 0))

    def _beat(self) -> None:
        failing = False
        while not self._stop.wait(self._renew):
            try:
                self._write()
            except StorageError as error:
                if not failing:
                    _log.warning("the heartbeat of this launch fails, another launch may take over: %s", error)
                failing = True
            else:
                failing = False

    def _write(self) -> None:
        content = json_bytes({"launch_id": self.id, **self._content, "renewed": time.time()})
        replace_bytes(self._launches.folder / f"{self.id}.json", content)
