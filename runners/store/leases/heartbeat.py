"""The drivers that work on a store: a small file for each, renewed by a heartbeat.

A driver is the process of one `goal-sweep launch`. Its record says which process it is, and on which machine. Every
attempt names its launch, so one heartbeat keeps hundreds of leases alive. These rules decide whether a driver is alive:

1. If its record is gone, it has ended.
2. On this machine, it is alive exactly as long as its process, whatever any clock says. A killed driver can be
   succeeded at once, and a suspended one is never taken for dead.
3. On another machine, or where the system hides other users' processes (``hidepid``), it is alive while its record is
   no older than the time to live. Ages are differences between file times of one file system, so the clocks of
   different machines need not agree. A record from further in the future than the time to live counts as dead: a
   living driver whose clock was set back renews it within seconds.
   (`status` writes nothing, so it compares with this machine's clock instead.)
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.store.leases.processes import ProcessIdentity
from goal_sweep.runners.store.records.result_content import Seconds
from goal_sweep.runners.store.storage.folders import LOCAL, Storage, read_json, read_record

_log = logging.getLogger(__name__)


class LeaseHeldError(GoalError):
    """Another living driver already works on the trainings asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What a driver writes of itself. Each value has a default, for a record that is damaged."""

    process: ProcessIdentity = field(default_factory=ProcessIdentity)
    sweep: str = "?"
    ttl: Seconds = 60.0
    started: Seconds = 0.0
    renewed: Seconds = 0.0
    until: Seconds = 0.0
    """When its launch expects to end; 0 where that is not known."""

    @classmethod
    def read(cls, storage: Storage, path: Path) -> _Record | None:
        """A driver's record; if damaged, that of nobody, and the file's time decides whether the driver lives."""
        try:
            return read_record(storage, path, cls)
        except DamagedError:
            return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverState:
    """What a store knows of one driver."""

    launch_id: str
    record: _Record
    alive: bool
    age: float
    """Seconds since its last sign of life."""

    @property
    def process(self) -> ProcessIdentity:
        """Its process."""
        return self.record.process

    @property
    def runs_for(self) -> float:
        """Seconds since it started: until its last sign of life by its own clock, and since then."""
        return self.age + self.record.renewed - self.record.started

    @property
    def left_s(self) -> float | None:
        """Seconds until its launch expects to end, by its own clock; None where that is not known."""
        return max(0.0, self.record.until - self.record.renewed - self.age) if self.record.until else None

    def describe(self) -> str:
        """Describe the driver in a message: user, machine, process, sweep and last sign of life."""
        return (
            f"{self.process.user}@{self.process.host} (pid {self.process.pid}, sweep {self.record.sweep}, "
            f"last sign of life {max(self.age, 0):.0f} s ago)"
        )


class DriverRecords:
    """Reads the records of a store's drivers.

    Args:
        folder: ``STORE/launches``; need not exist.
        storage: what keeps it.
    """

    def __init__(self, folder: Path, storage: Storage = LOCAL) -> None:
        self.folder, self.storage = folder, storage

    def state(self, launch_id: str, *, now: float | None = None) -> DriverState | None:
        """Read the state of one driver; None if it has ended.

        Args:
            launch_id: the launch, as in an attempt's record.
            now: the file system's time from `file_time`; this machine's clock if not given.
        """
        record = _Record.read(self.storage, path := self.folder / f"{launch_id}.json")
        seen = self.storage.seen(path)
        if record is None or not seen:
            return None
        age = (time.time() if now is None else now) - seen
        exists = record.process.exists()
        alive = abs(age) <= record.ttl if exists is None else exists
        return DriverState(launch_id=launch_id, record=record, alive=alive, age=age)

    def all(self, *, now: float | None = None) -> list[DriverState]:
        """Read the state of every driver that has a record, oldest first."""
        records = (path for path in sorted(self.storage.entries(self.folder)) if path.suffix == ".json")
        states = (self.state(path.stem, now=now) for path in records)
        return [state for state in states if state is not None]

    def planned(self, launch_id: str) -> frozenset[str]:
        """The keys of the trainings that a driver plans to do."""
        with contextlib.suppress(StorageError, DamagedError):  # then the leases keep the two apart
            return frozenset((read_json(self.storage, self.folder / f"{launch_id}.keys") or {}).get("keys", ()))
        return frozenset()

    def ask_to_stop(self, launch_id: str) -> None:
        """Ask the workers of a launch to save their state and stop. Its record is removed with the driver's.

        Raises:
            StorageError: the store cannot be written.
        """
        self.storage.replace(self.folder / f"{launch_id}.stop", b"")

    def is_asked_to_stop(self, launch_id: str) -> bool:
        """Whether a launch's workers are to save and stop; no if the store cannot be read."""
        return self.storage.appeared(self.folder / f"{launch_id}.stop")

    def bury(self, launch_id: str) -> None:
        """Remove the record of an ended driver, so that every machine sees at once that it has ended."""
        for suffix in ("keys", "json", "stop"):
            with contextlib.suppress(OSError):
                self.storage.remove(self.folder / f"{launch_id}.{suffix}")

    def file_time(self) -> float:
        """The time of the store's file system, in seconds. On network folders it may differ from this machine's."""
        return self.storage.now(self.folder)


class Heartbeat:
    """Shows other drivers that this one is alive. A context manager: the heartbeat ends with the block.

    Args:
        drivers: the records of the store's drivers, whose folder must exist.
        sweep: the sweep's name, shown to other drivers.
        ttl: seconds without a heartbeat after which other machines may take over.
        renew: seconds between heartbeats.
    """

    def __init__(self, drivers: DriverRecords, sweep: str, *, ttl: float = 60.0, renew: float = 10.0) -> None:
        self._drivers = drivers
        process = ProcessIdentity.of_this_process()
        self._record = _Record(process=process, sweep=sweep, ttl=ttl, started=time.time())
        self._renew = renew
        self.until: Callable[[], float] = lambda: 0.0
        """When the launch expects to end, as a time of this machine's clock; 0 while that is not known."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="goal-sweep heartbeat", daemon=True)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.id = f"{stamp}-{process.pid}-{secrets.token_hex(4)}"

    def start(
        self, keys: Iterable[str] = (), *, wait_s: float = 0.0, note: Callable[[str], None] = lambda line: None
    ) -> bool:
        """Announce the trainings of this driver, unless a living driver has announced some of them already.

        Args:
            keys: the keys of the trainings that this driver plans to do.
            wait_s: seconds to wait for that driver to end; a batch job that was killed counts as alive for a minute.
            note: shows a line to the user, that this waits.

        Returns:
            Whether it waited, so that what the caller knows of the store is out of date.

        Raises:
            LeaseHeldError: a living driver plans to do some of them; the message names it.
            StorageError: the store cannot be written.
        """
        wanted, deadline, tries = frozenset(keys), time.monotonic() + wait_s, 0
        while True:
            self._replace(f"{self.id}.keys", json_bytes({"keys": sorted(wanted)}))
            self._write()
            rival, tries = self._rival(wanted), tries + 1
            if rival is None:
                self._thread.start()
                return tries > 1
            self._drivers.bury(self.id)
            # Two drivers that start at the same moment see each other and both step back. Each then tries again after a
            # random time.
            refusal, is_new = self._refusal(rival, wanted), rival.runs_for <= 5 and tries < 3
            if time.monotonic() >= deadline and not is_new:
                raise LeaseHeldError(refusal)
            if wait_s and tries == 1:
                note(f"waiting for another launch: {refusal}")
            time.sleep(random.uniform(0.1, 1.5))

    def close(self) -> None:
        """End the heartbeat and remove the record, which frees what this driver left unfinished for others."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._drivers.bury(self.id)

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _rival(self, keys: frozenset[str]) -> DriverState | None:
        for other in self._drivers.all(now=self._drivers.file_time()):
            if other.launch_id == self.id:
                continue
            if not other.alive:
                # Only its own machine sees at once that a driver is dead. Without the record, all machines do.
                self._drivers.bury(other.launch_id)
            elif keys & self._drivers.planned(other.launch_id):
                return other
        return None

    def _refusal(self, rival: DriverState, keys: frozenset[str]) -> str:
        shared = len(keys & self._drivers.planned(rival.launch_id))
        how = f"wait until it ends, or stop it there with: kill {rival.process.pid}"
        own = self._record.process
        if rival.process.host in (own.host, "?") and rival.process.machine != own.machine:
            # It ran before this machine started anew, or in a container: its number may be another process's here.
            how = f"if it has ended, try again {rival.record.ttl:.0f} s after its last sign of life"
        return f"{shared} of the {len(keys)} trainings asked for are already being done by {rival.describe()}; {how}"

    def _beat(self) -> None:
        failing = False
        while not self._stop.wait(self._renew):
            try:
                self._write()
            except StorageError as error:
                if not failing:
                    _log.warning("the heartbeat of this launch fails, so another launch may take over: %s", error)
                failing = True
            else:
                failing = False

    def _write(self) -> None:
        record = replace(self._record, renewed=time.time(), until=self.until())
        self._replace(f"{self.id}.json", json_bytes(asdict(record)))

    def _replace(self, name: str, content: bytes) -> None:
        self._drivers.storage.replace(self._drivers.folder / name, content)
