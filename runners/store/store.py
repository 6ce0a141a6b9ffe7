"""The results folder, the source of truth about what has been trained.

::

    STORE/store.json                        the layout's version
    STORE/launches/<launch id>.json|.keys   the running drivers (runners.store.heartbeat); .stop asks one's workers to
                                            save and stop
    STORE/submissions/                      batch jobs (runners.store.submissions)
    STORE/tuning/<sweep>.json               what the sweep's search tried and chose; follows from the results
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
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from goal_core.basics.atomic import DamagedError, StorageError, perform
from goal_core.basics.sealed_json import json_bytes
from runners.store.heartbeat import DriverRecords, Heartbeat
from runners.store.result_content import RESULT
from runners.store.status import StatusReader, TrainingStatus
from runners.store.storage import Place, read_json
from runners.store.training_files import SUSPECT
from runners.store.training_folder import TrainingFolder
from sweeps import Cell, Training

_VERSION = 2
"""1: files without the attempt in their names (goal-sweep 0.1)."""


class Store:
    """A store: a results folder on a local disk or NFS, or a place in a bucket of an object store.

    Args:
        location: the folder, which `prepare` creates, or ``s3://bucket/prefix``. A relative path starts at the current
            working directory.
        patience: seconds to wait for an object store that has not answered yet; None for those of a command.

    Raises:
        StorageError: the location is a file or of an unknown kind, cannot be read, or a later version wrote it.
    """

    def __init__(self, location: str | Path, *, patience: float | None = None) -> None:
        place = Place.open(location, patience=patience)
        self.location, self.root = place.location, place.root
        self.storage, self._base = place.storage, place.base
        self.drivers = DriverRecords(self._base / "launches", self.storage)
        self._check_version()

    @property
    def features(self) -> Path:
        """The folder of this machine for the features of frozen backbones."""
        return self.root / "features"

    @property
    def packs(self) -> Path:
        """The folder of this machine for packed images: `GOAL_SWEEP_PACKS`, or one in the store."""
        return Path(os.environ.get("GOAL_SWEEP_PACKS") or self.root / "packs").expanduser()

    def _check_version(self) -> None:
        version = self._version()
        if version > _VERSION:
            raise StorageError(
                f"store {self.location} was written by a later goal-sweep (layout {version}, supported: {_VERSION}); "
                "upgrade goal-sweep"
            )

    def _version(self) -> int:
        """The layout's version; 0 where the store does not state it."""
        try:
            marker = read_json(self.storage, self._base / "store.json") or {}
        except DamagedError:
            return 0
        version = marker.get("version")
        return version if isinstance(version, int) else 0

    def prepare(self) -> None:
        """Create the store.

        Raises:
            StorageError: it cannot be created or written.
        """
        self.storage.prepare([self._base / "cells", self.drivers.folder])
        if self._version() < _VERSION:
            self.storage.replace(self._base / "store.json", json_bytes({"version": _VERSION}))

    def heartbeat(self, sweep: str, *, ttl: float = 60.0, renew: float = 10.0, shares: bool = False) -> Heartbeat:
        """Make a heartbeat for this process; see `runners.store.heartbeat.Heartbeat`."""
        self.prepare()
        return Heartbeat(self.drivers, sweep, ttl=ttl, renew=renew, shares=shares)

    def folder(self, training: Training) -> TrainingFolder:
        """The folder of a training, for reading, and for writing after `TrainingFolder.claim`."""
        return self.folder_of(training.cell.id, training.stage.name, training.key)

    def folder_of(self, cell_id: str, stage: str, key: str) -> TrainingFolder:
        """The folder of a training that is known only by its cell id, stage and key."""
        return TrainingFolder(self._cell_folder(cell_id) / f"{stage}-{key}", self.drivers)

    def cell_folders(self) -> list[Path]:
        """The folder of every cell that the store knows."""
        return self.storage.entries(self._base / "cells")

    def _cell_folder(self, cell_id: str) -> Path:
        return self._base / "cells" / cell_id

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
            if read_json(self.storage, path) is not None:
                return
        self.storage.make_folder(path.parent)
        self.storage.replace(path, json_bytes(description))

    def read_cell(self, cell_id: str) -> dict[str, Any] | None:
        """Read ``cell.json``; None if the store does not know the cell.

        Raises:
            DamagedError: the file exists but cannot be parsed.
        """
        return read_json(self.storage, self._cell_folder(cell_id) / "cell.json")

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
        reader, asked = StatusReader(self.drivers, max_attempts, thorough=thorough), list(trainings)

        def read(training: Training) -> TrainingStatus:
            return reader.read(self.folder(training).seen_at_once())

        return dict(zip(asked, self.storage.each(read, asked), strict=True))

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
            target = next((path for path in free if not self.storage.exists(path)), None)
            if target is None:
                raise FileExistsError(errno.EEXIST, f"there are 999 {why} copies already; remove some", str(folder))
            try:
                self.storage.move(folder, target, last=RESULT)
            except FileNotFoundError:
                return None
            return target

        return perform("rename", folder, move, doing="move")

    def write_trail(self, sweep: str, trail: Mapping[str, Any]) -> None:
        """Write the trail of a sweep's search as ``tuning/<sweep>.json``, unless it is there already.

        Raises:
            StorageError: it cannot be written.
        """
        path, content = self._base / "tuning" / f"{sweep}.json", json_bytes(trail)
        if self.storage.read(path) != content:
            self.storage.make_folder(path.parent)
            self.storage.replace(path, content)

    def read_trail(self, sweep: str) -> bytes | None:
        """Read what `write_trail` wrote; None where there is none.

        Raises:
            StorageError: it cannot be read.
        """
        return self.storage.read(self._base / "tuning" / f"{sweep}.json")

    def suspect(self, training: Training, damage: str) -> None:
        """Note what a thorough check found, so that the next launch reads every file of the training again.

        Raises:
            StorageError: the note cannot be written.
        """
        note = json_bytes({"damage": damage, "found": time.time()})
        self.storage.replace(self.folder(training).folder / SUSPECT, note)
