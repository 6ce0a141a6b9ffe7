"""The files of a training in the store, as every process may read them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from goal_core.basics.atomic import DamagedError, perform, storage_errors
from goal_core.basics.errors import WeightsError
from goal_core.basics.sealed_json import parse_json
from goal_core.checkpoints import BEST, LAST, TRIPLETS, best_name
from runners.store.attempts import AttemptFolder
from runners.store.imported import imported_from
from runners.store.result_content import METRICS, RESULT, is_count, is_metric, is_time, parse_result
from runners.store.storage import LOCAL, Storage
from runners.store.versions import fingerprint_of, is_whole_zip, problems, version_name, versions

LOG = "log.txt"
SUSPECT = "suspect.json"
"""A note that a thorough check found damage here."""


class TrainingFiles:
    """The files of a training in the store, to be read by every process.

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

    def place(self, name: str) -> Path:
        """The path of a file in the store: of a finished training as its result states it, else of its newest version.

        Args:
            name: the name without the attempt, such as ``metrics.jsonl``. `BEST` stands for the weights of a result.

        Returns:
            A path that need not exist.
        """
        with contextlib.suppress(DamagedError):
            stated = (self.result() or {"files": {}})["files"].get(name)
            if stated is not None and self.storage.exists(path := self.folder / str(stated.get("name", name))):
                return path
        return next(iter(self.places(name)), self.folder / name)

    def versions(self, name: str) -> Iterator[Path]:
        """As `places`, each as a file of this machine by the time that it is asked for."""
        return map(self.storage.fetch, self.places(name))

    def places(self, name: str) -> Sequence[Path]:
        """The versions in the store of a file that different attempts saved, the newest first."""
        return list(versions(self.folder, name, self.storage).values())

    def progressed(self, attempt: int) -> bool:
        """Whether an attempt saved a state that the next one can continue."""
        return self.storage.exists(self.folder / version_name(LAST, attempt))

    def log_text(self) -> str:
        """The log of all attempts; empty before a line is logged.

        Raises:
            StorageError: it cannot be read.
        """
        logs = reversed(self.places(LOG))
        return "".join((self.storage.read(path) or b"").decode(errors="replace") for path in logs)

    def log_sizes(self) -> dict[Path, int]:
        """The files of the log, and the bytes of each, to see what is added.

        Raises:
            StorageError: it cannot be read.
        """
        logs = {path: self.storage.written(path) for path in reversed(self.places(LOG))}
        return {path: written.bytes for path, written in logs.items() if written is not None}

    def load(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist.

        Raises:
            StorageError: the file cannot be read.
        """
        return self.storage.read(self.place(name))

    def result(self) -> dict[str, Any] | None:
        """Read the result; None if the training is not done.

        Raises:
            DamagedError: the file exists but is not a result.
            StorageError: the file cannot be read.
        """
        content, source = self.storage.read(self.folder / RESULT), self.storage.shown(self.folder / RESULT)
        if content is None:
            return None
        result = parse_result(content, source)
        here = {"cell": self.folder.parent.name, "stage_key": self.folder.name.rpartition("-")[2]}
        for name, own in here.items():
            if result.get(name, own) != own:
                raise DamagedError(f"{source} is the result of another training ({name} {result[name]})")
        return result

    def damage(self, result: Mapping[str, Any], *, thorough: bool = False) -> str:
        """Compare the files of a finished training with its result.

        Args:
            result: the result.
            thorough: read every file, and miss those that are gone, except the weights of an imported result;
                otherwise read only those that have changed since they were written. Where an earlier thorough check
                found damage, every check is thorough.

        Returns:
            What is damaged, or an empty text.

        Raises:
            StorageError: a file cannot be read.
        """
        if thorough or self.storage.exists(self.folder / SUSPECT):
            missing_ok = {BEST} if imported_from(self.folder, self.storage) else set()
            needed = result["files"].keys() - missing_ok
            return next(problems(self.folder, result["files"], self.storage, thorough=True, needed=needed), "")
        return next(problems(self.folder, result["files"], self.storage, thorough=False), "")

    def damaged_states(self) -> list[str]:
        """Read the states and weights of an unfinished training, and say what is damaged.

        Raises:
            StorageError: one cannot be read.
        """
        from goal_core.checkpoints import read_of_training  # with torch, which readers of results do without

        found, key = [], self.folder.name.rpartition("-")[2]
        for path in sorted(self.storage.entries(self.folder)):
            if path.suffix == ".safetensors" and path.stem.startswith(("last", "best")):
                try:
                    read_of_training(self.storage.fetch(path), key)
                except DamagedError as error:
                    found.append(str(error))
        return found

    def records(self) -> list[dict[str, Any]]:
        """Read the epoch records written so far, in order.

        Raises:
            DamagedError: a line is not an epoch record.
            StorageError: the file cannot be read.
        """
        path = self.place(METRICS)
        records, shown = [], self.storage.shown(path)
        for number, line in enumerate((self.storage.read(path) or b"").splitlines(), start=1):
            record = parse_json(line, f"{shown}:{number}")
            metrics = record.get("metrics")
            is_record = isinstance(metrics, dict) and all(map(is_metric, metrics.values()))
            if not (is_record and is_count(record.get("epoch")) and is_time(record.get("time", 0))):
                raise DamagedError(f"{shown}:{number} is damaged: it is not an epoch record")
            records.append({**record, "metrics": {key: float(value) for key, value in record["metrics"].items()}})
        return records

    def stated(self, best_epoch: int) -> dict[str, dict[str, Any]]:
        """Describe the files that a result rests on, after each was read whole.

        Args:
            best_epoch: the epoch of the weights that gave the result.

        Returns:
            By name, as a result's ``"files"``: the file's own name, its digest and how to see a later change.

        Raises:
            DamagedError: a file is missing or damaged.
            StorageError: a file cannot be read.
        """
        best = self.places(best_name(best_epoch)) or self.places(BEST)
        paths = {BEST: best[0] if best else self.folder / best_name(best_epoch)}
        paths |= {name: found[0] for name in (METRICS, TRIPLETS) if (found := self.places(name))}
        with storage_errors(paths[BEST], "read"):
            stated = {name: fingerprint_of(path, self.storage) for name, path in paths.items()}
        # Verified after the digests are taken, so that no digest is that of a damaged file.
        _check_weights(self.storage.fetch(paths[BEST]))
        self.records()
        if TRIPLETS in paths and not is_whole_zip(self.storage.fetch(paths[TRIPLETS])):
            raise DamagedError(f"{self.storage.shown(paths[TRIPLETS])} is damaged")
        return stated


def _check_weights(path: Path) -> None:
    from goal_core.checkpoints import read_checkpoint  # with torch, which readers of results do without

    with contextlib.suppress(WeightsError):  # a file without a state has no checksum
        read_checkpoint(path)
        return

    def read() -> None:
        with safe_open(path, framework="np"):
            pass

    try:
        perform("read", path, read)
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error
