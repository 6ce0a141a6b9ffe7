"""Where the files of a training are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.checkpoints.names import weights_in


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

    Every write but a log line is atomic, and refused once another process owns the training.
    """

    def path(self, name: str) -> Path:
        """A path on this machine with the content of a file; it does not exist where there is no such file."""

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


class FolderFiles(TrainingFiles):
    """The files in a folder of this machine, made if it is missing; no other process has the training."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

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
        self.path("result.json").write_bytes(json_bytes(result))

    def discard(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def best(self) -> Path:
        """The weights of the best epoch, once the training is done."""
        return weights_in(self.root)
