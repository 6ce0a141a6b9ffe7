"""The results folder, the source of truth about what has been trained.

::

    STORE/store.json                        the layout's version
    STORE/launches/<launch id>.json|.keys   the running drivers (runners.store.heartbeat); .stop asks one's workers to
                                            save and stop
    STORE/submissions/                      batch jobs (runners.store.submissions)
    STORE/cells/<cell id>/cell.json         description of the cell, written once
    STORE/cells/<cell id>/<stage>-<key>/    one training (runners.store.training_folder)
        log.txt  attempts/<n>.json  lease.json  result.json
        metrics.<n>.jsonl  triplets.<n>.npz  last.<n>.safetensors  best-<epoch>.<n>.safetensors     of attempt n

``result.json`` is written last, and it alone means done. Reading, including `status`, changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from goal_core.atomic import DamagedError, StorageError, make_folder, perform, replace_bytes
from goal_core.sealed_json import json_bytes, read_json
from runners.store.heartbeat import DriverRecords, Heartbeat
from runners.store.status import StatusReader, TrainingStatus
from runners.store.training_files import SUSPECT
from runners.store.training_folder import TrainingFolder
from sweeps import Cell, Training

_VERSION = 2
"""1: files without the attempt in their names (goal-sweep 0.1)."""


class Store:
    """A results folder, on a local disk or NFS.

    Args:
        root: the folder, which `prepare` creates. A relative path starts at the current working directory.

    Raises:
        StorageError: the location is an object store or a file, or a later version wrote it.
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
        version = self._version()
        if version > _VERSION:
            raise StorageError(
                f"store {self.root} was written by a later goal-sweep (layout {version}, supported: {_VERSION}); "
                "upgrade goal-sweep"
            )

    def _version(self) -> int:
        """The layout's version; 0 where the store does not state it."""
        try:
            marker = read_json(self.root / "store.json") or {}
        except DamagedError:
            return 0
        version = marker.get("version")
        return version if isinstance(version, int) else 0

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            StorageError: it cannot be created or written.
        """
        if self.root.exists() and not os.access(self.root, os.W_OK):
            raise StorageError(f"results folder {self.root} is read-only; make it writable, or give another --store")
        for folder in (self.root / "cells", self.drivers.folder):
            make_folder(folder)
        if self._version() < _VERSION:
            replace_bytes(self.root / "store.json", json_bytes({"version": _VERSION}))

    def heartbeat(self, sweep: str, *, ttl: float = 60.0, renew: float = 10.0, shares: bool = False) -> Heartbeat:
        """Make a heartbeat for this process; see `runners.store.heartbeat.Heartbeat`."""
        self.prepare()
        return Heartbeat(self.drivers.folder, sweep, ttl=ttl, renew=renew, shares=shares)

    def folder(self, training: Training) -> TrainingFolder:
        """The folder of a training, for reading, and for writing after `TrainingFolder.claim`."""
        return self.folder_of(training.cell.id, training.stage.name, training.key)

    def folder_of(self, cell_id: str, stage: str, key: str) -> TrainingFolder:
        """The folder of a training that is known only by its cell id, stage and key."""
        return TrainingFolder(self._cell_folder(cell_id) / f"{stage}-{key}", self.drivers)

    def _cell_folder(self, cell_id: str) -> Path:
        return self.root / "cells" / cell_id

    def write_cell(self, cell: Cell) -> None:
        """Write ``cell.json`` unless it exists. A damaged file is replaced.

        Raises:
            StorageError: the file cannot be written.
        """
        self.write_description(cell.id, cell.describe())

    def write_description(self, cell_id: str, description: Mapping[str, Any]) -> None:
        """Write ``cell.json`` as `write_cell` does, from a given description."""
        path = self._cell_folder(cell_id) / "cell.json"
        with contextlib.suppress(DamagedError):
            if read_json(path) is not None:
                return
        make_folder(path.parent)
        replace_bytes(path, json_bytes(description))

    def read_cell(self, cell_id: str) -> dict[str, Any] | None:
        """Read ``cell.json``; None if the store does not know the cell.

        Raises:
            DamagedError: the file exists but cannot be parsed.
        """
        return read_json(self._cell_folder(cell_id) / "cell.json")

    def status(
        self, trainings: Iterable[Training], *, max_attempts: int = 1, thorough: bool = False
    ) -> dict[Training, TrainingStatus]:
        """Read the status of trainings. Writes nothing; a damaged file is reported in the status, not raised.

        Args:
            trainings: the trainings to look up.
            max_attempts: number of charged failures after which a training is failed instead of waiting for another
                try.
            thorough: verify every file of finished trainings, also those that have not changed since they were written.

        Returns:
            One entry for each training, in the given order.
        """
        reader = StatusReader(self.drivers, max_attempts, thorough=thorough)
        return {training: reader.read(self.folder(training)) for training in trainings}

    def is_running(self, folder: TrainingFolder) -> bool:
        """Whether a living driver works in a training's folder."""
        return StatusReader(self.drivers, max_attempts=1).read(folder).state == "running"

    def set_aside(self, training: Training, why: Literal["replaced", "damaged"] = "replaced") -> Path | None:
        """Move a training's folder away, so that the next launch trains it again. Nothing is deleted.

        Args:
            training: the training.
            why: the folder's new name ends in ``.replaced-1`` or ``.damaged-1``, or the next free number.

        Returns:
            The new location, or None if there was nothing to move.

        Raises:
            StorageError: the folder cannot be moved.
        """
        folder = self.folder(training).folder

        def move() -> Path | None:
            free = (folder.with_name(f"{folder.name}.{why}-{number}") for number in range(1, 1000))
            target = next((path for path in free if not path.exists()), None)
            if target is None:
                raise FileExistsError(errno.EEXIST, f"there are 999 {why} copies already; remove some", str(folder))
            try:
                return folder.rename(target)
            except FileNotFoundError:
                return None

        return perform("rename", folder, move, doing="move")

    def suspect(self, training: Training, damage: str) -> None:
        """Note what a thorough check found, so that the next launch reads every file of the training again.

        Raises:
            StorageError: the note cannot be written.
        """
        replace_bytes(self.folder(training).folder / SUSPECT, json_bytes({"damage": damage, "found": time.time()}))
