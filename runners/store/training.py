"""A training's folder in the store: its files, the claim of its trainer, and how its attempts end.

What a result and an epoch's record state is checked when they are read, so nobody has to ask again.
"""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import FencedError, GoalError
from goal_sweep.goal_core.basics.files import json_bytes, parse_json
from goal_sweep.goal_core.checkpoints.names import BEST, LAST, RANKS, best_name
from goal_sweep.runners.store.attempts import RENEW_S, Attempt, AttemptFolder, Outcome
from goal_sweep.runners.store.storage import LOCAL, Storage

LOG = "log.txt"
WORKING = re.compile(r"last\.safetensors|best-\d+\.safetensors")
"""Files that a training needs until it is done; afterwards only the weights of its best epoch."""
RESULT = "result.json"
METRICS = "metrics.jsonl"


class ClaimedError(GoalError):
    """Nobody may claim this training now: it has its result, or another process trains it."""


class ClaimLostError(FencedError):
    """A later attempt has taken over this attempt's training. It must stop without writing anything."""


class TrainingFolder:
    """A training's folder. Every process may read it; `claim` gives the right to write.

    What writes raises `ClaimLostError` if another attempt has taken over, and `StorageError` if the store cannot be
    written; what was there before is then unchanged. What reads raises `StorageError` if a file cannot be read.

    Args:
        folder: ``STORE/cells/<cell id>/<stage>-<stage key>``; need not exist.
    """

    def __init__(self, folder: Path, storage: Storage = LOCAL) -> None:
        self.folder, self.storage = folder, storage
        self.attempts = AttemptFolder(folder, storage)
        self.attempt: Attempt | None = None
        """This object's attempt, from `claim` to its end."""
        self._writing = threading.Lock()
        """Of the attempt's record, which another thread renews."""

    # Reading.

    def path(self, name: str) -> Path:
        """A file of this machine with the content of a file of the training; it may not exist."""
        return self.storage.fetch(self.place(name))

    def place(self, name: str, result: Mapping[str, Any] | None = None) -> Path:
        """The path of a file in the store; it may not exist. `BEST` stands for the weights that gave the result."""
        if name == BEST:
            if result is None:
                with contextlib.suppress(DamagedError):
                    result = self.result()
            name = str((result or {}).get("files", {}).get(BEST, {}).get("name", BEST))
        return self.folder / name

    def result(self) -> dict[str, Any] | None:
        """The result; None if the training is not done. Raises `DamagedError` where it is not of this training."""
        content, source = self.storage.read(self.folder / RESULT), self.storage.shown(self.folder / RESULT)
        if content is None:
            return None
        result = parse_result(content, source)
        own = {"cell": self.folder.parent.name, "stage_key": self._key}
        for name, value in own.items():
            if result.get(name, value) != value:
                raise DamagedError(f"{source} is the result of another training ({name} {result[name]})")
        return result

    def stated(self, name: str, result: Mapping[str, Any]) -> bytes | None:
        """The content of a file that a result states; None if it states none. Raises `DamagedError` if it differs."""
        if (stated := result.get("files", {}).get(name)) is None:
            return None
        path = self.place(name, result)
        content = self.storage.read(path)
        if content is None or hashlib.sha256(content).hexdigest() != stated["sha256"]:
            why = "it is missing" if content is None else "its content does not match its checksum"
            raise DamagedError(f"{self.storage.shown(path)} is damaged: {why}")
        return content

    def records(self, result: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The epochs' records so far, in order; those of a finished training must be as its result states.

        Raises `DamagedError` where they are not, or a line is not an epoch's record.
        """
        path = self.folder / METRICS
        content = self.stated(METRICS, result) if result else self.storage.read(path)
        shown, lines = self.storage.shown(path), (content or b"").splitlines()
        return [_parsed(line, f"{shown}:{number}", ("epoch", "time")) for number, line in enumerate(lines, start=1)]

    def logs(self) -> dict[Path, int]:
        """The files of the log, and the bytes of each, to see what is added. In a bucket, each attempt has one."""
        files = self.storage.files(self.folder).items()
        sizes = {path: written.bytes for path, written in files if re.fullmatch(r"log(\.\d+)?\.txt", path.name)}
        return dict(sorted(sizes.items(), key=lambda each: (len(each[0].name), each[0])))

    def log_text(self) -> str:
        """The log of all attempts."""
        return "".join((self.storage.read(path) or b"").decode(errors="replace") for path in self.logs())

    def progressed(self, attempt: Attempt) -> bool:
        """Whether a state was saved since an attempt began."""
        return attempt.progressed or self._state_written() != attempt.state_before

    def _state_written(self) -> int:
        """When the state was written (ns since 1970); 0 without one."""
        written = self.storage.written(self.folder / LAST)
        return written.modified_ns if written else 0

    @property
    def _key(self) -> str:
        return self.folder.name.rpartition("-")[2]

    # The claim.

    def claim(self, launch: str, shared_by: int = 1) -> None:
        """Begin an attempt, to which all further writes belong.

        It supersedes a running attempt of the same launch, whose driver saw the process end. Raises `ClaimedError`
        where the training has its result, or another process trains it.
        """
        self.storage.make_folder(self.attempts.folder)
        while True:
            self._refuse_if_done()
            newest = self.attempts.newest()
            if newest is not None and newest.launch != launch and self.attempts.is_held(newest, exactly=True):
                raise ClaimedError(f"{self.folder.parent.name}/{self.folder.name} is trained by {newest.describe()}")
            how = {"state_before": self._state_written(), "shared_by": shared_by}
            attempt = Attempt.of_this_process(1 if newest is None else newest.n + 1, launch, **how)
            if self.attempts.create(attempt):
                break
        self.attempt = attempt
        self.check()
        for earlier in self.attempts.all()[:-1]:
            if earlier.outcome == "running":
                progressed = earlier.state_before != attempt.state_before
                lost = earlier.ending("lost", reason="its process ended unexpectedly", progressed=progressed)
                self.attempts.write(lost)
        for folder in (self.folder, self.attempts.folder):
            atomic.remove_leftovers(folder)
        try:
            self._refuse_if_done()
        except ClaimedError:  # the owner before finished between the first look and the claim
            self.end("interrupted", "the training was already done")
            raise

    def _refuse_if_done(self) -> None:
        try:
            if self.result() is not None:
                raise ClaimedError(f"{self.folder.parent.name}/{self.folder.name} is done")
        except DamagedError as error:
            self.forget_result(str(error))

    def check(self) -> Attempt:
        """This object's attempt, after a check that it still owns the training."""
        if self.attempt is None:
            raise ValueError(f"{self.folder} must be claimed before it is written")
        numbers = self.attempts.numbers()
        if not numbers or numbers[-1] != self.attempt.n:
            raise ClaimLostError(
                f"attempt {self.attempt.n} at {self.folder.parent.name}/{self.folder.name} has lost its claim to a "
                "later one; what it was writing is discarded"
            )
        return self.attempt

    def renew(self) -> None:
        """Show that this object's attempt lives."""
        with self._writing:
            if self.attempt is not None:
                self.attempts.write(self.check())

    # Writing.

    def save_with(self, name: str, write: Callable[[Path], object]) -> None:
        """Let a library write a file, whole to the path that it is given; it takes the place of the one before."""
        self.check()
        self.storage.save_with(self.folder / name, write, guard=self.check)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write ``metrics.jsonl`` anew with exactly these records (`training.plan.EpochRecord`), a line each."""
        content = b"".join(json_bytes(record, indent=None) for record in records)
        self.save_with(METRICS, lambda path: path.write_bytes(content))

    def log(self, line: str) -> None:
        """Append to ``log.txt``, each line with the time (UTC) and the number of the attempt. Needs no claim."""
        number = 0 if self.attempt is None else self.attempt.n
        prefix = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} attempt {number} | "
        text = "".join(f"{prefix}{part}\n" for part in line.splitlines() or [""])
        self.storage.append(self.folder / LOG, text.encode(), writer=number)

    def discard(self, name: str) -> None:
        """Remove a file that is no longer needed. If it cannot be removed, it stays."""
        self.check()
        with contextlib.suppress(OSError):
            self.storage.remove(self.folder / name)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result as the trainer reports it. The training is then done, and what nobody needs is removed.

        Adds ``"stage_key"``, ``"attempt"``, ``"finished"`` (seconds since 1970), and ``"files"``: by name, the files
        that the result rests on, with their SHA-256; a `StorageError` where one is gone.
        """
        attempt = self.check()
        there = {name: name for name in (METRICS, RANKS) if self.storage.written(self.folder / name) is not None}
        files = {BEST: best_name(int(result["best_epoch"])), **there}
        stated = {key: {"name": name, "sha256": self.storage.digest(self.folder / name)} for key, name in files.items()}
        own = {"stage_key": self._key, "attempt": attempt.n, "finished": time.time(), "files": stated}
        if not self.storage.create(self.folder / RESULT, json_bytes({**result, **own}), guard=self.check):
            raise ClaimLostError(f"{self.folder / RESULT} was written by another attempt; this one's is discarded")
        self.end("done")
        kept = {one["name"] for one in stated.values()}
        with contextlib.suppress(OSError):
            for path in self.storage.entries(self.folder):
                if WORKING.fullmatch(path.name) and path.name not in kept:
                    self.storage.remove(path)

    def end(self, outcome: Outcome, reason: str = "", **how: Any) -> None:
        """End this object's attempt; `how` has its ``trace``, ``counted`` and ``final``."""
        with self._writing:
            attempt, self.attempt = self.check(), None
            progressed = outcome != "done" and self.progressed(attempt)
            self.attempts.write(attempt.ending(outcome, reason=reason, ended=time.time(), progressed=progressed, **how))

    # For the driver, about a training whose worker has ended.

    def end_for(self, launch: str, outcome: Outcome, reason: str, *, counted: bool = False) -> None:
        """End the newest attempt if it is still that of a launch, whose process has ended. Its own reason stays."""
        newest = self.attempts.newest()
        if newest is not None and newest.launch == launch and newest.outcome in ("running", "lost"):
            how = {"ended": newest.ended or time.time(), "counted": counted, "progressed": self.progressed(newest)}
            self.attempts.write(newest.ending(outcome, reason=newest.reason or reason, **how))

    def forget_result(self, why: str) -> None:
        """Take the result away, because a file that it rests on is damaged: the training is trained again."""
        self.log(f"trained again: {why}")
        self.storage.remove(self.folder / RESULT)


@contextlib.contextmanager
def renewed(folders: Sequence[TrainingFolder]) -> Iterator[None]:
    """Show in the block that claimed trainings are being trained. A claim that was lost shows at the next write."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_S):
            for folder in folders:
                with contextlib.suppress(StorageError, FencedError):
                    folder.renew()

    threading.Thread(target=renew, name="goal-sweep claims", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def parse_result(content: bytes, source: str) -> dict[str, Any]:
    """Parse a ``result.json``; a `DamagedError` where it is not the result of a finished training.

    The names of files are checked, because a store may come from anybody.
    """
    result = _parsed(content, source, ("epochs", "best_epoch", "attempt", "seconds", "finished", "files"))
    names = {BEST: best_name(result["best_epoch"]), METRICS: METRICS, RANKS: RANKS}
    files = result["files"] if isinstance(result["files"], dict) else {}
    for key, stated in {BEST: None, **files}.items():
        if not isinstance(stated, dict) or stated.get("name") != names.get(key, "") or "sha256" not in stated:
            raise DamagedError(f"{source} is damaged: its files have {stated!r:.80} as {key!r:.80}")
    return result


def _parsed(content: bytes, source: str, names: Sequence[str]) -> dict[str, Any]:
    """What is stated; numbers that JSON lacks, which stand there as text, become floats."""
    stated = parse_json(content, source)
    try:
        metrics = {str(name): float(value) for name, value in stated["metrics"].items()}
        return {**stated, **{name: stated[name] for name in names}, "metrics": metrics}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise DamagedError(f"{source} is damaged: {type(error).__name__}: {error}") from error
