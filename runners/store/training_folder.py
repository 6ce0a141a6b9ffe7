"""The folder of a training in the store, as its trainer reads and writes it."""

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
from runners.store.imported import remove_mark
from runners.store.lease import Lease, LeaseLostError, acquire

RESULT = "result.json"
METRICS = "metrics.jsonl"
BEST = "best.safetensors"
LOG = "log.txt"


class AlreadyDoneError(GoalError):
    """The training already has its result, so it cannot be claimed."""


class TrainingFolder:
    """A training's folder in the store. Every process may read it; `claim` gives the right to write.

    The trainer chooses the names of the files that this class does not name (checkpoints).

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
        """Number of this object's attempt; 0 before `claim`."""
        self._finished = False

    def __repr__(self) -> str:
        return f"TrainingFolder({str(self.folder)!r}, attempt={self.attempt})"

    def path(self, name: str) -> Path:
        """The path of a file of this training, which need not exist."""
        return self.folder / name

    @property
    def log_path(self) -> Path:
        """The path of ``log.txt``, which exists once a line is logged."""
        return self.path(LOG)

    def load(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist.

        Raises:
            StorageError: the file cannot be read.
        """
        path = self.path(name)
        with storage_errors(path, "read"):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def result(self) -> dict[str, Any] | None:
        """Read the result; None if the training is not done.

        Raises:
            DamagedError: the file exists but is not a result.
            StorageError: the file cannot be read.
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
        """Read the epoch records written so far, in order.

        Raises:
            DamagedError: a line is not an epoch record.
            StorageError: the file cannot be read.
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

    def claim(self, launch_id: str) -> int:
        """Begin an attempt, to which all further writes belong.

        A damaged result is renamed to ``result.json.damaged``, because the training is then not done.

        Args:
            launch_id: the launch for which the caller works.

        Returns:
            The number of the attempt.

        Raises:
            AlreadyDoneError: the training has its result.
            LeaseHeldError: another living driver works on the training.
            LeaseLostError: a later claim of the same launch overtook this one.
            StorageError: the folder cannot be written.
        """
        self._refuse_if_done()
        self._lease = acquire(self.folder, launch_id, self._drivers)
        self.attempt = self._lease.attempt
        try:
            self._refuse_if_done()
        except AlreadyDoneError:
            # The previous owner finished between the first check and the claim.
            self._end("interrupted", reason="the training was already done")
            raise
        return self.attempt

    def save(self, name: str, data: bytes) -> None:
        """Write or replace a file atomically.

        Raises:
            LeaseLostError: another attempt has taken over; the old file is unchanged.
            StorageError: the file cannot be written; the old file is unchanged.
        """
        with self._fenced() as lease:
            replace_bytes(self.path(name), data, guard=lease.check)

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """Like `save`, for content that a library writes to a given path.

        Args:
            name: the file's name in this folder.
            write: writes the whole content to its argument, a path in this folder that does not exist yet.

        Raises:
            LeaseLostError: another attempt has taken over; the old file is unchanged.
            StorageError: the file cannot be written; the old file is unchanged.
        """
        with self._fenced() as lease:
            replace_with(self.path(name), write, guard=lease.check)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write ``metrics.jsonl`` anew with exactly these records, one line per epoch.

        Args:
            records: ``{"epoch": 1-based, "metrics": {name: float}}``, and any other JSON values, such as ``"time"``
                (seconds since 1970, which tracking uses as the time of the epoch).

        Raises:
            LeaseLostError: another attempt has taken over.
            StorageError: the file cannot be written.
        """
        self.save(METRICS, b"".join(json_bytes(record, indent=None) for record in records))

    def log(self, line: str) -> None:
        """Append to ``log.txt``, each line with the time (UTC) and the number of the attempt.

        Writing does not need the lease: late lines of a superseded attempt do no harm, because they carry its number.
        """
        prefix = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} attempt {self.attempt} | "
        text = "".join(f"{prefix}{part}\n" for part in line.splitlines() or [""])
        path = self.log_path
        with storage_errors(path, "write"):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result. The training is then done, and nothing in the folder changes any more.

        Adds ``"stage_key"``, ``"attempt"``, ``"finished"`` (seconds since 1970), and ``"files"``, the digest of the
        weights that gave the result.

        Args:
            result: as the trainer reports it; ``status`` is ``done`` and ``metrics`` maps names to numbers.

        Raises:
            LeaseLostError: another attempt has taken over, or finished first.
            StorageError: the result cannot be written, or the best weights are missing or damaged.
        """
        lease = self._owned()
        atomic.crash_point("finish: begin")
        lease.check()
        remove_mark(self.folder)
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
        """Remove a file that a finished training no longer needs. If it cannot be removed, it stays.

        Raises:
            LeaseLostError: another attempt has taken over.
        """
        if not self._finished:
            self._owned().check()
        with contextlib.suppress(OSError):
            self.path(name).unlink(missing_ok=True)

    def fail(self, reason: str, trace: str = "", *, charged: bool = True, final: bool = False) -> None:
        """End the attempt as failed. Further writes are refused.

        Args:
            reason: one line.
            trace: the traceback, if there is one.
            charged: whether it counts against `max_attempts`; False for a lost node or a pre-emption.
            final: whether another attempt would end the same way, so that none is made.

        Raises:
            LeaseLostError: another attempt has taken over.
            StorageError: the record cannot be written.
        """
        self._end("failed", reason=reason, trace=trace, charged=charged, final=final)

    def _owned(self) -> Lease:
        if self._lease is None and self.attempt:
            raise LeaseLostError(f"attempt {self.attempt} at {self.folder.parent.name}/{self.folder.name} has ended")
        if self._lease is None:
            raise RuntimeError(f"claim {self.folder} before writing to it")
        return self._lease

    @contextlib.contextmanager
    def _fenced(self) -> Iterator[Lease]:
        """Wrap a write: its guard checks the lease before the rename, and this checks it again afterwards."""
        lease = self._owned()
        try:
            yield lease
        except StorageError:
            # A successor may have moved or cleaned the folder; then the lost lease is the reason.
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
            raise AlreadyDoneError(f"{self.folder.parent.name}/{self.folder.name} is already done")

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
    """Record how the newest attempt ended, on behalf of its process.

    The driver calls this after a worker died, because the worker cannot.

    Args:
        folder: the training's folder.
        launch_id: the driver's launch; attempts of other launches are not changed.
        outcome: `failed`, `interrupted` or `lost`.
        reason: one line.
        charged: whether it counts against `max_attempts`.

    Returns:
        Whether a running attempt of that launch was ended.
    """
    record = folder.attempts.newest()
    if record is None or record.launch_id != launch_id or record.outcome != "running":
        return False
    folder.attempts.update(record.ending(outcome, ended=time.time(), reason=reason, charged=charged))
    return True


def weights_problem(path: Path) -> str:
    """Check a weights file without loading it. Returns what is wrong, or an empty text.

    A flipped bit inside a tensor is not found here, only with the digest in the result.
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
    """The SHA-256 of a file, in hex."""
    with storage_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def charged_failures(attempts: Iterable[Attempt]) -> int:
    """Count the attempts that count against `max_attempts`."""
    return sum(attempt.charged for attempt in attempts)
