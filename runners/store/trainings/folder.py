"""The folder of a training in the store, as its trainer reads and writes it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.checkpoints import LAST
from goal_sweep.runners.store.leases.heartbeat import DriverRecords
from goal_sweep.runners.store.leases.lease import Lease, LeaseLostError, acquire
from goal_sweep.runners.store.records.attempts import Outcome, was_cut_off
from goal_sweep.runners.store.records.result_content import METRICS, RESULT
from goal_sweep.runners.store.trainings.files import LOG, WORKING, TrainingFiles, version_name


class AlreadyDoneError(GoalError):
    """The training already has its result, so it cannot be claimed."""


class TrainingFolder(TrainingFiles):
    """A training's folder in the store. Every process may read it; `claim` gives the right to write.

    The trainer chooses the names of the files that this class does not name (checkpoints). What writes raises
    `LeaseLostError` if another attempt has taken over, and `StorageError` if the store cannot be written; what was
    there before is then unchanged.

    Args:
        folder: ``STORE/cells/<cell id>/<stage>-<stage key>``; need not exist.
        drivers: the records of the store's drivers.
    """

    def __init__(self, folder: Path, drivers: DriverRecords) -> None:
        super().__init__(folder, drivers.storage)
        self._drivers = drivers
        self._lease: Lease | None = None
        self.attempt = 0
        """Number of this object's attempt; 0 before `claim`."""
        self.memory_mb: Callable[[], float] = float
        """Measures the memory of a GPU that the attempt has needed, in megabytes; asked when it ends."""

    def __repr__(self) -> str:
        return f"TrainingFolder({str(self.folder)!r}, attempt={self.attempt})"

    def claim(self, launch_id: str, **how: Any) -> int:
        """Begin an attempt, to which all further writes belong.

        A damaged result is renamed to ``result.json.damaged``, because the training is then not done.

        Args:
            launch_id: the launch for which the caller works.
            **how: ``node``, ``shared_by``, ``micro_batch`` and ``units_per_gpu`` of `Attempt`.

        Returns:
            The number of the attempt.

        Raises:
            AlreadyDoneError: the training has its result.
            LeaseHeldError: another living driver works on the training.
            LeaseLostError: a later claim of the same launch overtook this one.
        """
        self._refuse_if_done()
        self._lease = acquire(self.folder, launch_id, self._drivers, **how)
        self.attempt = self._lease.attempt
        try:
            self._refuse_if_done()
        except AlreadyDoneError:
            # The previous owner finished between the first check and the claim.
            self._end("interrupted", reason="the training was already done")
            raise
        return self.attempt

    def save(self, name: str, data: bytes) -> None:
        """Write or replace this attempt's version of a file atomically."""
        self.save_with(name, lambda path: path.write_bytes(data))

    def save_with(self, name: str, write: Callable[[Path], object]) -> None:
        """Like `save`, for content that a library writes.

        Args:
            name: the file's name in this folder.
            write: writes the whole content to its argument, a path that does not exist yet.
        """
        lease = self._owned()
        self.storage.save_with(self.folder / version_name(name, lease.attempt), write, guard=lease.check)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write ``metrics.jsonl`` anew with exactly these records, one line per epoch.

        Args:
            records: ``{"epoch": 1-based, "time": seconds since 1970, "metrics": {name: float}}``, and any other JSON
                values.
        """
        self.save(METRICS, b"".join(json_bytes(record, indent=None) for record in records))

    def log(self, line: str) -> None:
        """Append to ``log.txt``, each line with the time (UTC) and the number of the attempt.

        Writing does not need the lease: late lines of a superseded attempt do no harm, because they carry its number.
        """
        prefix = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} attempt {self.attempt} | "
        text = "".join(f"{prefix}{part}\n" for part in line.splitlines() or [""])
        self.storage.append(self.folder / LOG, text.encode(), writer=self.attempt)

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for a store that is slow or away."""
        return self.storage.is_waiting

    def path(self, name: str) -> Path:
        """As for every training; while this object's attempt runs, its own version is the newest."""
        own = self.folder / version_name(name, self.attempt)
        return own if self._lease is not None and own.exists() else super().path(name)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result. The training is then done, and nothing in the folder changes any more.

        Adds ``"stage_key"``, ``"attempt"``, ``"finished"`` (seconds since 1970), and ``"files"``: by name, the files of
        the weights that gave the result and of the records, with their digests. Files of other epochs and of earlier
        attempts are removed, and so is the state, unless another training may continue it (``until``).

        Args:
            result: as the trainer reports it; ``status`` is ``done`` and ``metrics`` maps names to numbers.

        Raises:
            DamagedError: a file of the training is missing or damaged.
            StorageError: also where something lies in the result's place that cannot be read, as a link to nowhere.
        """
        lease = self._owned()
        atomic.crash_point("finish: begin")
        lease.check()
        complete = {
            **result,
            "stage_key": self.folder.name.rpartition("-")[2],
            "attempt": lease.attempt,
            "finished": time.time(),
            "files": self.stated(int(result["best_epoch"])),
        }
        if not self.storage.create(self.folder / RESULT, json_bytes(complete), guard=lease.check):
            shown = self.storage.shown(self.folder / RESULT)
            if self.storage.read(self.folder / RESULT) is None:  # another attempt would end here too
                raise StorageError(f"cannot write {shown}: a link to nowhere is in its place; remove it")
            raise LeaseLostError(f"{shown} was written by another attempt; this one's is discarded")
        atomic.crash_point("finish: before outcome")
        self._end("done")
        kept = {str(stated["name"]) for stated in complete["files"].values()}
        # What ended before the end of its stage may be continued.
        self._tidy(lease.attempt, kept | ({version_name(LAST, lease.attempt)} if "until" in result else set()))

    def _tidy(self, attempt: int, kept: set[str]) -> None:
        """Remove what a result does not state: files of other epochs, of earlier attempts, and of this one's state."""
        with contextlib.suppress(OSError):
            for path in self.storage.entries(self.folder):
                match = WORKING.fullmatch(path.name)
                if match and int(match[1]) <= attempt and path.name not in kept:
                    with contextlib.suppress(OSError):
                        atomic.before_operation("remove", path)
                        self.storage.remove(path)

    def discard(self, name: str) -> None:
        """Remove this attempt's version of a file that is no longer needed. If it cannot be removed, it stays."""
        lease = self._owned()
        self.storage.discard(self.folder / version_name(name, lease.attempt), guard=lease.check)

    def set_aside(self, path: Path) -> None:
        """Rename a damaged file to ``<name>.damaged``."""
        lease = self._owned()
        lease.check()
        try:
            self.storage.move(path, path.with_name(f"{path.name}.damaged"))
        except StorageError:
            # A successor may have moved or cleaned the folder; then the lost lease is the reason.
            lease.check()
            raise
        lease.check()

    def fail(self, reason: str, trace: str = "", **how: bool) -> None:
        """End the attempt as failed.

        Args:
            reason: one line.
            trace: the traceback, if there is one.
            **how: ``charged``, ``final`` and ``out_of_memory`` of `Attempt`. A failure is charged unless they say
                otherwise.
        """
        self._end("failed", reason=reason, trace=trace, **how)

    def release(self, reason: str) -> None:
        """End the attempt before its training ends, at no cost; a later attempt continues from its last state."""
        self._end("interrupted", reason=reason)

    def lose(self, reason: str, *, out_of_memory: bool = False) -> None:
        """End the attempt because its process must end. Whose fault that is shows when the unit starts again.

        Args:
            reason: one line.
            out_of_memory: the fault is known: memory ran out, and fewer pairs at a time may fit.
        """
        self._end("lost", reason=reason, died=not out_of_memory, out_of_memory=out_of_memory)

    def end_for(self, launch_id: str, outcome: Outcome, reason: str, *, charged: bool, died: bool = False) -> bool:
        """Record how the newest attempt ended, on behalf of its process, which cannot because it died.

        Args:
            launch_id: the driver's launch; attempts of other launches are not changed.
            outcome: `failed`, `interrupted` or `lost`.
            reason: one line; the reason that the attempt has already, as after a hang, is kept.
            charged: whether it counts against `max_attempts`.
            died: whether its process died or hung.

        Returns:
            Whether an attempt of that launch was ended that was running or cut off.
        """
        record = self.attempts.newest()
        if record is None or record.launch_id != launch_id or not was_cut_off(record):
            return False
        how = {"charged": charged, "died": died, "progressed": self.progressed(record.n)}
        self.attempts.update(record.ending(outcome, ended=time.time(), reason=record.reason or reason, **how))
        return True

    def forgive(self, launch_id: str, node: str) -> None:
        """Stop charging a launch's attempts on a machine (Ray's id of it) that turned out to be at fault."""
        for record in self.attempts.all():
            if record.launch_id == launch_id and record.node == node and record.charged:
                self.attempts.update(replace(record, charged=False))

    def has_progressed(self) -> bool:
        """Whether this object's attempt has saved a state of its own; False if that cannot be read."""
        try:
            return self.progressed(self.attempt)
        except (DamagedError, StorageError):
            return False

    def _owned(self) -> Lease:
        if self._lease is None and self.attempt:
            raise LeaseLostError(f"attempt {self.attempt} at {self.folder.parent.name}/{self.folder.name} has ended")
        if self._lease is None:
            raise RuntimeError(f"claim {self.folder} before writing to it")
        return self._lease

    def _refuse_if_done(self) -> None:
        try:
            result = self.result()
        except DamagedError:
            if self._lease is not None:
                self.storage.move(self.folder / RESULT, self.folder / f"{RESULT}.damaged")
            return
        if result is not None:
            raise AlreadyDoneError(f"{self.folder.parent.name}/{self.folder.name} is already done")

    def _end(self, outcome: Outcome, **how: Any) -> None:
        lease = self._owned()
        lease.check()
        record = self.attempts.read(lease.attempt)
        if record is not None:
            how |= {"progressed": self.has_progressed(), "memory_mb": self.memory_mb()}
            self.attempts.update(record.ending(outcome, ended=time.time(), **how))
        self._lease = None
