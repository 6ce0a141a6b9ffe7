"""Where the files of a training are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.checkpoints import BEST, best_name


class EpochRecord(TypedDict):
    """The metrics of one training after one epoch."""

    epoch: int
    """Counted from 1."""
    time: float
    """When the epoch ended, seconds since 1970."""
    metrics: dict[str, float]
    """By name: `train/...`, `val/...`, `time/...`, `system/...`."""


class TrainingFiles(Protocol):
    """The files of one training.

    Every write but a log line is atomic, and refused once another attempt owns the training.
    """

    def path(self, name: str) -> Path:
        """The path of the newest version of a file; where there is none, a path that does not exist."""

    def versions(self, name: str) -> Iterable[Path]:
        """The versions of a file that different attempts saved, the newest first."""

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a temporary file, then put it in place under ``name``."""

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        """Make the metrics file contain exactly these epochs."""

    def log(self, line: str) -> None:
        """Add a line to the log."""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which alone means that the training is done, and remove what nobody needs then."""

    def discard(self, name: str) -> None:
        """Remove a file that is no longer needed."""

    def set_aside(self, path: Path) -> None:
        """Rename a damaged file, so that nothing reads it again. It is kept."""


class FolderFiles(TrainingFiles):
    """The files in a folder of this machine, of which this process alone has the training.

    Args:
        root: the folder; made if it is missing.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def versions(self, name: str) -> Sequence[Path]:
        return [self.path(name)] if self.path(name).exists() else []

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        temporary = self.path(f"{name}.new")
        write(temporary)
        temporary.replace(self.path(name))

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        self.path("metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def log(self, line: str) -> None:
        with self.path("log.txt").open("a") as file:
            file.write(f"{line}\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        name = best_name(result["best_epoch"])
        files = {BEST: {"name": name, "sha256": hashlib.sha256(self.path(name).read_bytes()).hexdigest()}}
        self.path("result.json").write_bytes(json_bytes({**result, "files": files}))

    def discard(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def set_aside(self, path: Path) -> None:
        path.rename(path.with_name(f"{path.name}.damaged"))

    def best(self) -> Path:
        """The weights of the best epoch, once the training is done."""
        result = json.loads(self.path("result.json").read_text())
        return self.path(str(result["files"][BEST]["name"]))
