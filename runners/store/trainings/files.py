"""The files of a training in the store, as every process may read them.

Each attempt writes files of its own, so no attempt can overwrite another's: ``best-3.safetensors`` of attempt 2 is
``best-3.2.safetensors``. While a training runs, the newest version counts; when it is done, its result names the files
that count.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError, read_bytes, storage_errors
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints import BEST, LAST, RANKS, SPARE, best_name
from goal_sweep.runners.store.records.attempts import AttemptFolder
from goal_sweep.runners.store.records.result_content import METRICS, RESULT, parse_epoch, parse_result
from goal_sweep.runners.store.storage.folders import LOCAL, Storage

LOG = "log.txt"
WORKING = re.compile(r"(?:last(?:-spare)?|best-\d+|metrics|ranks)\.(\d+)\.(?:safetensors|jsonl|npz)")
"""Files of an attempt (group 1) that it needs while it trains."""
_NO_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
"""What reading a damaged zip file raises, as the bit that flipped."""


def version_name(name: str, attempt: int) -> str:
    """The name of an attempt's version of a file."""
    stem, suffix = os.path.splitext(name)
    return f"{stem}.{attempt}{suffix}"


class TrainingFiles:
    """The files of a training in the store, to be read by every process.

    Every method raises `StorageError` if a file cannot be read.

    Args:
        folder: ``STORE/cells/<cell id>/<stage>-<stage key>``; need not exist.
        storage: what keeps it.
    """

    def __init__(self, folder: Path, storage: Storage = LOCAL) -> None:
        self.folder, self.storage = folder, storage
        self.attempts = AttemptFolder(folder, storage)

    def path(self, name: str) -> Path:
        """A file of this machine with the content of a file of the training, for a library; see `place`."""
        return self.storage.fetch(self.place(name))

    def place(self, name: str, result: Mapping[str, Any] | None = None) -> Path:
        """The path of a file in the store: of a finished training as its result states it, else of its newest version.

        Args:
            name: the name without the attempt, such as ``metrics.jsonl``. `BEST` stands for the weights of a result.
            result: the result, if it has been read already; empty if there is none.

        Returns:
            A path that need not exist.
        """
        if result is None:
            with contextlib.suppress(DamagedError):
                result = self.result()
        stated = (result or {}).get("files", {}).get(name)
        if stated is not None:
            return self.folder / str(stated["name"])
        return next(iter(self.places(name)), self.folder / name)

    def versions(self, name: str) -> Iterator[Path]:
        """As `places`, each as a file of this machine by the time that it is asked for."""
        return map(self.storage.fetch, self.places(name))

    def places(self, name: str) -> Sequence[Path]:
        """The versions in the store of a file, the newest first; a log that all share is last."""
        stem, suffix = map(re.escape, os.path.splitext(name))
        found = self.storage.entries(self.folder)
        matches = {path: re.fullmatch(rf"{stem}(?:\.(\d+))?{suffix}", path.name) for path in found}
        numbers = {path: int(match[1] or 0) for path, match in matches.items() if match}
        return sorted(numbers, key=numbers.__getitem__, reverse=True)

    def progressed(self, attempt: int) -> bool:
        """Whether an attempt saved a state that the next one can continue."""
        return any(self.storage.exists(self.folder / version_name(name, attempt)) for name in (LAST, SPARE))

    def log_text(self) -> str:
        """The log of all attempts; empty before a line is logged."""
        logs = reversed(self.places(LOG))
        return "".join((self.storage.read(path) or b"").decode(errors="replace") for path in logs)

    def log_sizes(self) -> dict[Path, int]:
        """The files of the log, and the bytes of each, to see what is added."""
        logs = {path: self.storage.written(path) for path in reversed(self.places(LOG))}
        return {path: written.bytes for path, written in logs.items() if written is not None}

    def result(self) -> dict[str, Any] | None:
        """Read the result; None if the training is not done.

        Raises:
            DamagedError: the file exists but is not a result of this training.
        """
        content, source = self.storage.read(self.folder / RESULT), self.storage.shown(self.folder / RESULT)
        if content is None:
            return None
        result = parse_result(content, source)
        own = {"cell": self.folder.parent.name, "stage_key": self.folder.name.rpartition("-")[2]}
        for name, value in own.items():
            if result.get(name, value) != value:
                raise DamagedError(f"{source} is the result of another training ({name} {result[name]})")
        return result

    def damage(self, result: Mapping[str, Any], *, thorough: bool = False) -> str:
        """Compare the files of a finished training with its result.

        Args:
            result: the result.
            thorough: read every file, and miss those that are gone, except the weights of an imported result;
                otherwise read only those that have changed since they were written.

        Returns:
            What is damaged, or an empty text.
        """
        there = self.storage.files(self.folder)
        for name, stated in result["files"].items():
            path = self.folder / stated["name"]
            written, shown = there.get(path), self.storage.shown(path)
            if written is None:
                if thorough and not (name == BEST and result.get("imported")):
                    return f"{shown} is missing"
            elif written.bytes != stated["bytes"]:
                return f"{shown} is damaged: it has {written.bytes:,} bytes, not {stated['bytes']:,}"
            elif (thorough or written.modified_ns != stated["modified_ns"]) and (
                self.storage.digest(path) != stated["sha256"]
            ):
                return f"{shown} is damaged: its content does not match its checksum"
        return ""

    def damaged_states(self) -> list[str]:
        """Read the states and weights of an unfinished training, and say what is damaged."""
        paths = sorted(path for path in self.storage.entries(self.folder) if path.suffix == ".safetensors")
        return [line for line in map(self._damage_of, paths) if line]

    def _damage_of(self, checkpoint: Path) -> str:
        from goal_sweep.goal_core.checkpoints import read_of_training  # with torch, which readers of results do without

        try:
            read_of_training(self.storage.fetch(checkpoint), self.folder.name.rpartition("-")[2])
        except DamagedError as error:
            return str(error)
        return ""

    def records(self, result: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Read the epoch records written so far, in order.

        Args:
            result: as for `place`.

        Raises:
            DamagedError: a line is not an epoch record.
        """
        path = self.place(METRICS, result)
        shown, lines = self.storage.shown(path), (self.storage.read(path) or b"").splitlines()
        return [parse_epoch(line, f"{shown}:{number}") for number, line in enumerate(lines, start=1)]

    def stated(self, best_epoch: int) -> dict[str, dict[str, Any]]:
        """Describe the files that a result rests on, after each was read whole.

        Args:
            best_epoch: the epoch of the weights that gave the result.

        Returns:
            By name, as a result's ``"files"``: the file's own name, its digest and how to see a later change.

        Raises:
            DamagedError: a file is missing or damaged.
        """
        from goal_sweep.goal_core.checkpoints import read_checkpoint  # with torch, which readers of results do without

        names = {BEST: best_name(best_epoch), METRICS: METRICS, RANKS: RANKS}
        paths = {name: places[0] for name, saved_as in names.items() if (places := self.places(saved_as))}
        weights = paths.setdefault(BEST, self.folder / best_name(best_epoch))
        with storage_errors(weights, "read"):
            stated = {name: self._fingerprint(path) for name, path in paths.items()}
        # Verified after the digests are taken, so that no digest is that of a damaged file.
        try:
            read_checkpoint(self.storage.fetch(weights))
        except WeightsError as error:
            raise DamagedError(str(error)) from error
        self.records()
        if RANKS in paths and not is_whole_zip(self.storage.fetch(paths[RANKS])):
            raise DamagedError(f"{self.storage.shown(paths[RANKS])} is damaged")
        return stated

    def _fingerprint(self, path: Path) -> dict[str, Any]:
        """What a result states of a file: its name, size and content, and when it was written."""
        written = self.storage.written(path)
        if written is None:
            raise StorageError(f"cannot read {self.storage.shown(path)}: it is gone")
        sha256 = LOCAL.digest(self.storage.fetch(path))
        return {"name": path.name, "bytes": written.bytes, "sha256": sha256, "modified_ns": written.modified_ns}


def is_whole_zip(path: Path) -> bool:
    """Whether a zip file (such as an ``.npz``) matches its own checksums; True if there is none."""
    content = read_bytes(path)
    try:
        return content is None or zipfile.ZipFile(io.BytesIO(content)).testzip() is None
    except _NO_ZIP:
        return False
