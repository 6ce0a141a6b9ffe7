"""The folder of a training: what a trainer reads and writes there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from goal_core import atomic
from goal_core.atomic import (
    DamagedError,
    StorageError,
    create_bytes,
    json_bytes,
    read_json,
    replace_bytes,
    replace_with,
    storage_errors,
)
from goal_core.errors import GoalError
from runners.store.attempts import Attempt, AttemptFolder, Outcome
from runners.store.heartbeat import DriverRecords
from runners.store.lease import Lease, LeaseLostError, acquire

RESULT = "result.json"
METRICS = "metrics.jsonl"
BEST = "best.safetensors"
LOG = "log.txt"


class AlreadyDoneError(GoalError):
    """The training has its result; there is nothing left to claim."""


class TrainingFolder:
    """A training's folder in the store. Anybody may read; `claim` gives the right to write.

    Files that this class does not name itself (checkpoints) are the trainer's to name.

    Args:
        folder: ``STORE/cells/<cell id>/<stage>-<stage key>``; need not exist.
        drivers: the records of the store's drivers.
    """

    def __init__(self, folder: Path, drivers: DriverRecords) -> None:
        self.folder = folder
        self.attempts = AttemptFolder(folder)
        self._drivers = drivers
        self._lease: Lease | None = None
        self.attempt = 0
        """The number of the attempt that writes here, or did last; 0 before `claim`."""
        self._finished = False

    def __repr__(self) -> str:
        return f"TrainingFolder({str(self.folder)!r}, attempt={self.attempt})"

    # Reading.

    def path(self, name: str) -> Path:
        """Where a file of this training is, or would be."""
        return self.folder / name

    def load(self, name: str) -> bytes | None:
        """A file's content; None when it is absent.

        Raises:
            StorageError: the disk refuses.
        """
        path = self.path(name)
        with storage_errors(path, "read"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def result(self) -> dict[str, Any] | None:
        """The result, which alone means that the training is done; None before.

        Raises:
            DamagedError: the file is there but is not a result.
            StorageError: the disk refuses.
        """
        result = read_json(self.path(RESULT))
        if result is None:
            return None
        try:
            result["metrics"] = {str(key): float(value) for key, value in result["metrics"].items()}
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise DamagedError(f"{self.path(RESULT)} is damaged: it has no metrics") from error
        if result.get("status") != "done":
            raise DamagedError(f"{self.path(RESULT)} is damaged: it is not the result of a finished training")
        return result

    def records(self) -> list[dict[str, Any]]:
        """The epoch records written so far, in order.

        Raises:
            DamagedError: a line is not one.
            StorageError: the disk refuses.
        """
        content = self.load(METRICS) or b""
        records = []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                record = json.loads(line)
                record["metrics"] = {str(key): float(value) for key, value in record["metrics"].items()}
                record["epoch"] = int(record["epoch"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DamagedError(f"{self.path(METRICS)}:{number} is damaged: not an epoch record") from error
            records.append(record)
        return records

    # Writing.

    def claim(self, launch_id: str) -> int:
        """Begin an attempt; every write from now on is its own.

        A damaged result is set aside as ``result.json.damaged``, for the training is not done.

        Args:
            launch_id: the launch on whose behalf the caller works.

        Returns:
            The attempt's number.

        Raises:
            AlreadyDoneError: the result is there.
            LeaseHeldError: a living driver is at work here.
            LeaseLostError: a later claim of the same launch overtook this one.
            StorageError: the disk refuses.
        """
        self._refuse_if_done()
        self._lease = acquire(self.folder, launch_id, self._drivers)
        self.attempt = self._lease.attempt
        try:
            self._refuse_if_done()
        except AlreadyDoneError:
            # The previous owner finished between the first look and the claim.
            self._end("interrupted", reason="the result was there already")
            raise
        return self.attempt

    def save(self, name: str, data: bytes) -> None:
        """Put a file in place, whole.

        Raises:
            LeaseLostError: another attempt has taken over; the file there is not touched.
            StorageError: the disk refuses; the file there is as it was.
        """
        with self._fenced() as lease:
            replace_bytes(self.path(name), data, guard=lease.check)

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """As `save`, for content that a library writes to a path it is given.

        Args:
            name: the file's name in this folder.
            write: writes everything to its argument, a path in this folder that does not exist yet.

        Raises:
            LeaseLostError: another attempt has taken over; the file there is not touched.
            StorageError: the disk refuses; the file there is as it was.
        """
        with self._fenced() as lease:
            replace_with(self.path(name), write, guard=lease.check)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Make ``metrics.jsonl`` hold exactly these records, one line an epoch.

        Args:
            records: ``{"epoch": 1-based, "metrics": {name: float}}`` and whatever else is JSON, such as ``"time"``
                (seconds since 1970, which tracking shows as the time of the epoch).

        Raises:
            LeaseLostError: another attempt has taken over.
            StorageError: the disk refuses.
        """
        self.save(METRICS, b"".join(json_bytes(record, indent=None) for record in records))

    def log(self, line: str) -> None:
        """Append to ``log.txt``, each line with the time (UTC) and the attempt.

        Lines carry their attempt, so those of one that was superseded do no harm and are not refused.
        """
        prefix = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} attempt {self.attempt} | "
        text = "".join(f"{prefix}{part}\n" for part in line.splitlines() or [""])
        path = self.path(LOG)
        with storage_errors(path, "write"):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result: from here on the training is done, and nothing in the folder changes any more.

        Added to it: ``"stage_key"``, ``"attempt"``, ``"finished"`` (seconds since 1970), and ``"files"``, the digest
        of the weights that it speaks for.

        Args:
            result: as the trainer reports it: ``status`` is ``done``, ``metrics`` maps names to numbers.

        Raises:
            LeaseLostError: another attempt has taken over, or has finished first.
            StorageError: the disk refuses, or the best weights are missing or not whole.
        """
        lease = self._owned()
        atomic.crash_point("finish: begin")
        complete = {
            **result,
            "stage_key": self.folder.name.rpartition("-")[2],
            "attempt": lease.attempt,
            "finished": time.time(),
            "files": self._digests(),
        }
        if not create_bytes(self.path(RESULT), json_bytes(complete), guard=lease.check):
            raise LeaseLostError(f"{self.path(RESULT)} was written by another attempt; this one's is discarded")
        atomic.crash_point("finish: before outcome")
        self._end("done")
        self._finished = True

    def discard(self, name: str) -> None:
        """Remove a file that a finished training no longer needs; one that cannot be removed stays.

        Raises:
            LeaseLostError: another attempt has taken over.
        """
        if not self._finished:
            self._owned().check()
        with contextlib.suppress(OSError):
            self.path(name).unlink(missing_ok=True)

    def fail(self, reason: str, trace: str = "", *, charged: bool = True, final: bool = False) -> None:
        """End the attempt as failed; writes are refused from here on.

        Args:
            reason: one line.
            trace: the traceback, when there is one.
            charged: whether it counts against `max_attempts`; False for a lost node or a pre-emption.
            final: another try would end the same way, so none is made.

        Raises:
            LeaseLostError: another attempt has taken over.
            StorageError: the disk refuses.
        """
        self._end("failed", reason=reason, trace=trace, charged=charged, final=final)

    # How it is done.

    def _owned(self) -> Lease:
        if self._lease is None and self.attempt:
            raise LeaseLostError(f"attempt {self.attempt} at {self.folder.parent.name}/{self.folder.name} has ended")
        if self._lease is None:
            raise RuntimeError(f"claim {self.folder} before writing to it")
        return self._lease

    @contextlib.contextmanager
    def _fenced(self) -> Iterator[Lease]:
        """A write: its guard looks at the lease before the rename, and this looks again after it."""
        lease = self._owned()
        try:
            yield lease
        except StorageError:
            # A successor may have moved or cleaned what was written to; then that is the reason.
            lease.check()
            raise
        lease.check()

    def _refuse_if_done(self) -> None:
        try:
            result = self.result()
        except DamagedError:
            if self._lease is not None:
                with storage_errors(self.path(RESULT), "set aside"):
                    self.path(RESULT).replace(self.path(f"{RESULT}.damaged"))
            return
        if result is not None:
            raise AlreadyDoneError(f"{self.folder.parent.name}/{self.folder.name} is done already")

    def _end(
        self, outcome: Outcome, *, reason: str = "", trace: str = "", charged: bool | None = None, final: bool = False
    ) -> None:
        lease = self._owned()
        lease.check()
        record = self.attempts.read(lease.attempt)
        if record is not None:
            self.attempts.update(
                record.ending(outcome, ended=time.time(), reason=reason, trace=trace, charged=charged, final=final)
            )
        self._lease = None

    def _digests(self) -> dict[str, dict[str, Any]]:
        path = self.path(BEST)
        problem = weights_problem(path)
        if problem:
            raise StorageError(f"cannot finish {self.folder}: {problem}")
        return {BEST: {"sha256": digest(path), "bytes": path.stat().st_size}}


def end_attempt(folder: TrainingFolder, launch_id: str, outcome: Outcome, reason: str, *, charged: bool) -> bool:
    """Write down, from outside, how the newest attempt ended whose process is gone.

    The driver calls this when a worker died; the worker cannot.

    Args:
        folder: the training's.
        launch_id: the driver's launch; attempts of others are left alone.
        outcome: `failed`, `interrupted` or `lost`.
        reason: one line.
        charged: whether it counts against `max_attempts`.

    Returns:
        Whether there was a running attempt of that launch to end.
    """
    record = folder.attempts.newest()
    if record is None or record.launch_id != launch_id or record.outcome != "running":
        return False
    folder.attempts.update(record.ending(outcome, ended=time.time(), reason=reason, charged=charged))
    return True


def weights_problem(path: Path) -> str:
    """What is wrong with a weights file, without loading it; empty when it is whole.

    A flipped bit inside a tensor does not show here: that takes the digest in the result.
    """
    try:
        with safe_open(path, framework="np"):
            return ""
    except FileNotFoundError:
        return f"{path} is missing"
    except SafetensorError as error:
        return f"{path} is damaged: {error}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with storage_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def charged_failures(attempts: Iterable[Attempt]) -> int:
    """How many attempts count against `max_attempts`."""
    return sum(attempt.charged for attempt in attempts)
