"""The results folder: the truth about what has been trained.

::

    STORE/store.json                        the layout's version
    STORE/launches/<launch id>.json|.keys   who is at work (runners.store.heartbeat)
    STORE/cells/<cell id>/cell.json         what the cell is, written once
    STORE/cells/<cell id>/<stage>-<key>/    one training (runners.store.training_folder)
        metrics.jsonl  last.safetensors  best.safetensors  log.txt  attempts/<n>.json  lease.json  result.json

``result.json`` comes last and alone means done. Reading, `status` included, changes nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from goal_core.atomic import (
    DamagedError,
    StorageError,
    create_bytes,
    json_bytes,
    read_json,
    replace_bytes,
    storage_errors,
)
from runners.store.heartbeat import DriverRecords, Heartbeat
from runners.store.status import StatusReader, TrainingStatus
from runners.store.training_folder import TrainingFolder
from sweeps import Cell, Training

_VERSION = 1


class Store:
    """A results folder, on a local disk or NFS.

    Args:
        root: the folder; made by `prepare`. Relative paths are taken from the working directory now.

    Raises:
        StorageError: the location is an object store, is a file, or was written by a later version.
    """

    def __init__(self, root: str | Path) -> None:
        text = str(root)
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", text)
        if scheme and scheme[1].lower() != "file":
            raise StorageError(f"store {text!r} must be a folder; object stores ({scheme[1]}://) are not supported")
        self.root = Path(text[len("file://") :] if scheme else text).expanduser().absolute()
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"store {self.root} is a file, not a folder")
        self.drivers = DriverRecords(self.root / "launches")
        self._check_version()

    def _check_version(self) -> None:
        try:
            marker = read_json(self.root / "store.json")
        except DamagedError:
            return
        version = (marker or {}).get("version", _VERSION)
        if not isinstance(version, int) or version > _VERSION:
            raise StorageError(
                f"store {self.root} was written by a later goal-sweep (layout {version}, this one knows {_VERSION}): "
                "upgrade goal-sweep"
            )

    def prepare(self) -> None:
        """Make the folder, and see that it can be written.

        Raises:
            StorageError: it cannot.
        """
        with storage_errors(self.root, "create"):
            for folder in (self.root / "cells", self.drivers.folder):
                folder.mkdir(parents=True, exist_ok=True)
        marker = self.root / "store.json"
        if not marker.exists():
            create_bytes(marker, json_bytes({"version": _VERSION}))

    def heartbeat(self, sweep: str, *, ttl: float = 60.0, renew: float = 10.0) -> Heartbeat:
        """This process's presence on the store; see `runners.store.heartbeat.Heartbeat`."""
        self.prepare()
        return Heartbeat(self.drivers.folder, sweep, ttl=ttl, renew=renew)

    def folder(self, training: Training) -> TrainingFolder:
        """A training's folder, for reading, and for writing after `TrainingFolder.claim`."""
        return self.folder_of(training.cell.id, training.stage.name, training.key)

    def folder_of(self, cell_id: str, stage: str, key: str) -> TrainingFolder:
        """The folder of a training of which no more is known than its names."""
        return TrainingFolder(self._cell_folder(cell_id) / f"{stage}-{key}", self.drivers)

    def _cell_folder(self, cell_id: str) -> Path:
        return self.root / "cells" / cell_id

    def write_cell(self, cell: Cell) -> None:
        """Write ``cell.json``, unless it is there already; a damaged one is replaced.

        Raises:
            StorageError: the disk refuses.
        """
        self.write_description(cell.id, cell.describe())

    def write_description(self, cell_id: str, description: Mapping[str, Any]) -> None:
        """`write_cell` for a description that is at hand."""
        path = self._cell_folder(cell_id) / "cell.json"
        with contextlib.suppress(DamagedError):
            if read_json(path) is not None:
                return
        with storage_errors(path.parent, "create"):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, json_bytes(description))

    def read_cell(self, cell_id: str) -> dict[str, Any] | None:
        """What ``cell.json`` says, or None when the store does not know the cell.

        Raises:
            DamagedError: the file is there but cannot be read.
        """
        return read_json(self._cell_folder(cell_id) / "cell.json")

    def status(self, trainings: Iterable[Training], *, max_attempts: int = 1) -> dict[Training, TrainingStatus]:
        """How far trainings are. Writes nothing, and never fails on a damaged file: it says so in the answer.

        Args:
            trainings: those to look up.
            max_attempts: charged failures after which a training counts as failed rather than waiting for its next try.

        Returns:
            One entry for each training, in the order given.
        """
        reader = StatusReader(self.drivers, max_attempts)
        return {training: reader.read(self.folder(training)) for training in trainings}

    def is_running(self, folder: TrainingFolder) -> bool:
        """Whether a living driver is at work in a training's folder."""
        return StatusReader(self.drivers, max_attempts=1).read(folder).state == "running"

    def set_aside(self, training: Training) -> Path | None:
        """Move a training's folder out of the way, so that the next launch trains it again. Nothing is deleted.

        Returns:
            Where it is now, or None when there is nothing to move.

        Raises:
            StorageError: the disk refuses.
        """
        folder = self.folder(training).folder
        with storage_errors(folder, "move"):
            for number in range(1, 1000):
                target = folder.with_name(f"{folder.name}.replaced-{number}")
                if target.exists():
                    continue
                try:
                    return folder.rename(target)
                except FileNotFoundError:
                    return None
        raise StorageError(f"{folder.parent} holds a thousand replaced copies of {folder.name}; remove some")
