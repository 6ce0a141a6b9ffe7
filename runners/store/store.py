"""The results folder, the source of truth about what has been trained.

::

    STORE/store.json                        the version of this layout, and what tells this store from others
    STORE/launches/<launch id>.json|.keys   the running drivers (runners.store.leases); .stop asks the workers of one
                                            to save and stop
    STORE/submissions/                      batch jobs (runners.store.submissions)
    STORE/sweeps/<sweep>/results.parquet    the sweep's results table (runners.results); follows from the results
    STORE/cells/<cell id>/cell.json         description of the cell, written once
    STORE/cells/<cell id>/<stage>-<key>/    one training (runners.store.trainings)
        log.txt  attempts/<n>.json  result.json
        metrics.<n>.jsonl  ranks.<n>.npz  last.<n>.safetensors  best-<epoch>.<n>.safetensors     of attempt n

``result.json`` is written last, and it alone means done. Reading, including `status`, changes nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.data.formats.index import own_indexes
from goal_sweep.runners.store.leases.heartbeat import DriverRecords, Heartbeat
from goal_sweep.runners.store.records.result_content import RESULT
from goal_sweep.runners.store.storage.folders import read_json
from goal_sweep.runners.store.storage.place import is_object_store, local_root, opened
from goal_sweep.runners.store.trainings.folder import TrainingFolder
from goal_sweep.runners.store.trainings.status import TrainingStatus, status_of
from goal_sweep.sweeps import Cell, Training
from goal_sweep.sweeps.results import RESULTS_FILE

_VERSION = 5


class Store:
    """A store: a results folder on a local disk or NFS, or a place in a bucket of an object store.

    Args:
        location: the folder, which `prepare` creates, or ``s3://bucket/prefix``. A relative path starts at the current
            working directory.
        patience: seconds to wait for an object store that has not answered yet; None for those of a command.

    Raises:
        StorageError: the location is a file or of an unknown kind, cannot be read, or another version wrote it.
    """

    def __init__(self, location: str | Path, *, patience: float | None = None) -> None:
        self.root = local_root(str(location))
        """The folder of this machine for what need not be shared: cached features, tracking, reports. Of a store in a
        folder, the folder itself."""
        self._base, self.storage = opened(str(location), patience)
        self.location = str(location) if is_object_store(str(location)) else str(self.root)
        """As every process of the launch can open it."""
        self.drivers = DriverRecords(self._base / "launches", self.storage)
        self._check_version()

    @property
    def features(self) -> Path:
        """The folder of this machine for the features of frozen backbones."""
        return self.root / "features"

    @property
    def indexes(self) -> Path:
        """The folder of this machine for the indexes of datasets: this user's own until the store is made."""
        return self.root / "indexes" if self.id else own_indexes()

    @property
    def packs(self) -> Path:
        """The folder of this machine for packed images: `GOAL_SWEEP_PACKS`, or one in the store."""
        return Path(os.environ.get("GOAL_SWEEP_PACKS") or self.root / "packs").expanduser()

    def _check_version(self) -> None:
        version = self._stated("version")
        if version not in (None, _VERSION):
            is_later = isinstance(version, int) and version > _VERSION
            what = "a later" if is_later else "an earlier development"
            advice = "upgrade it" if is_later else "start another store, or read this one with that version"
            raise StorageError(
                f"store {self.location} was written by {what} version of goal-sweep (layout {version}, this version "
                f"reads {_VERSION}); {advice}"
            )

    @property
    def id(self) -> str:
        """What tells this store from all others, wherever it is moved; empty before `prepare`."""
        return str(self._stated("id") or "")

    def _stated(self, name: str) -> object:
        """What the store states of itself; None where it does not, or its statement is damaged."""
        # Other versions have another kind of checksum, or none.
        with contextlib.suppress(DamagedError, UnicodeDecodeError, json.JSONDecodeError, AttributeError):
            return json.loads(self.storage.read(self._base / "store.json") or "{}").get(name)
        return None

    def prepare(self) -> None:
        """Create the store.

        Raises:
            StorageError: it cannot be created or written.
        """
        self.storage.prepare([self._base / "cells", self.drivers.folder])
        path, content = self._base / "store.json", json_bytes({"version": _VERSION, "id": uuid.uuid4().hex})
        if self._stated("version") is None and not self.storage.create(path, content):
            if self._stated("version") is None:  # it is damaged
                self.storage.replace(path, content)

    def heartbeat(self, sweep: str, *, ttl: float = 60.0, renew: float = 10.0) -> Heartbeat:
        """Make a heartbeat for this process; see `runners.store.leases.heartbeat.Heartbeat`."""
        self.prepare()
        return Heartbeat(self.drivers, sweep, ttl=ttl, renew=renew)

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
        """Write ``cell.json``, which tells people what the cell is, unless it exists. A damaged file is replaced.

        Raises:
            StorageError: the file cannot be written.
        """
        path = self._cell_folder(cell.id) / "cell.json"
        with contextlib.suppress(DamagedError):
            if read_json(self.storage, path) is not None:
                return
        self.storage.make_folder(path.parent)
        self.storage.replace(path, json_bytes(cell.describe()))

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
        driver_of, asked = functools.cache(self.drivers.state), list(trainings)

        def read(training: Training) -> TrainingStatus:
            return status_of(self.folder(training), driver_of, max_attempts, thorough=thorough)

        return dict(zip(asked, self.storage.each(read, asked), strict=True))

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
        names = (folder.with_name(f"{folder.name}.{why}-{number}") for number in itertools.count(1))
        target = next(path for path in names if not self.storage.exists(path))
        try:
            self.storage.move(folder, target, last=RESULT)
        except FileNotFoundError:
            return None
        return target

    def fetch(self, path: str) -> Path:
        """A file of this machine with the content of a path in the store, such as a results table states it."""
        return self.storage.fetch(self._base / path)

    def write_results(self, sweep: str, content: bytes) -> None:
        """Write the results table of a sweep, as ``sweeps/<sweep>/results.parquet``.

        Raises:
            StorageError: it cannot be written.
        """
        path = self._results(sweep)
        self.storage.make_folder(path.parent)
        self.storage.replace(path, content)

    def read_results(self, sweep: str) -> bytes | None:
        """Read what `write_results` wrote; None where there is none.

        Raises:
            StorageError: it cannot be read.
        """
        return self.storage.read(self._results(sweep))

    def _results(self, sweep: str) -> Path:
        return self._base / "sweeps" / sweep / RESULTS_FILE
