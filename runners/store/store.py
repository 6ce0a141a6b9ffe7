"""The results folder, the only truth about what has been trained.

::

    STORE/store.json                        the version of this layout
    STORE/launches/<launch id>.json|.stop   a launch that runs, and that its workers are to save and stop
    STORE/submissions/                      batch jobs (runners.store.submissions)
    STORE/sweeps/<sweep>/results.parquet    the sweep's results table (runners.results); follows from the results
    STORE/cells/<cell id>/cell.json         description of the cell, written once
    STORE/cells/<cell id>/<stage>-<key>/    one training (runners.store.training)
        attempts/<n>.json  log.txt  metrics.jsonl  ranks.npz  result.json
        last.safetensors  last-spare.safetensors  best-<epoch>.safetensors

``result.json`` is written last, and it alone means done. Reading, including `status`, changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.data.formats.index import own_indexes
from goal_sweep.runners.store.status import TrainingStatus, status_of
from goal_sweep.runners.store.storage.folders import read_json
from goal_sweep.runners.store.storage.place import is_object_store, local_root, opened
from goal_sweep.runners.store.training import TrainingFolder
from goal_sweep.sweeps.cells import Cell, Training
from goal_sweep.sweeps.results import RESULTS_FILE

_VERSION = 6


class Store:
    """A store: a results folder on a local disk or NFS, or a place in a bucket of an object store.

    Its methods raise `StorageError` where it cannot be read or written. Raises `StorageError` where the location is a
    file or of an unknown kind, cannot be read, or another version wrote it.

    Args:
        location: the folder, which `prepare` creates, or ``s3://bucket/prefix``. A relative path starts at the
            current working directory.
        patience: seconds to wait for an object store that has not answered yet; None for those of a command.
    """

    def __init__(self, location: str | Path, *, patience: float | None = None) -> None:
        self.root = local_root(str(location))
        """The folder of this machine for what need not be shared: cached features, tracking, reports. Of a store in a
        folder, the folder itself."""
        self._base, self.storage = opened(str(location), patience)
        self.location = str(location) if is_object_store(str(location)) else str(self.root)
        """As every process of the launch can open it."""
        version = self._version()
        if version not in (None, _VERSION):
            raise StorageError(
                f"store {self.location} was written by another version of goal-sweep (layout {version}, this version "
                f"reads {_VERSION}); use that version, or start another store"
            )

    @property
    def features(self) -> Path:
        """The folder of this machine for the features of frozen backbones."""
        return self.root / "features"

    @property
    def indexes(self) -> Path:
        """The folder of this machine for the indexes of datasets: this user's own until the store is made."""
        return self.root / "indexes" if self.exists else own_indexes()

    @property
    def packs(self) -> Path:
        """The folder of this machine for packed images: `GOAL_SWEEP_PACKS`, or one in the store."""
        return Path(os.environ.get("GOAL_SWEEP_PACKS") or self.root / "packs").expanduser()

    @property
    def exists(self) -> bool:
        """Whether the store has been made."""
        return self._version() is not None

    def _version(self) -> object:
        """The version that the store states; None where it does not, or its statement is damaged."""
        # Other versions have another kind of checksum, or none.
        with contextlib.suppress(DamagedError, UnicodeDecodeError, json.JSONDecodeError, AttributeError):
            return json.loads(self.storage.read(self._base / "store.json") or "{}").get("version")
        return None

    def prepare(self) -> None:
        """Create the store."""
        self.storage.prepare([self._base / "cells", self._base / "launches"])
        if not self.exists:
            self.storage.replace(self._base / "store.json", json_bytes({"version": _VERSION}))

    def folder(self, training: Training) -> TrainingFolder:
        """The folder of a training, for reading, and for writing after `TrainingFolder.claim`."""
        return self.folder_of(training.cell.id, training.stage.name, training.key)

    def folder_of(self, cell_id: str, stage: str, key: str) -> TrainingFolder:
        """The folder of a training that is known only by its cell id, stage and key."""
        return TrainingFolder(self._cell_folder(cell_id) / f"{stage}-{key}", self.storage)

    def cell_folders(self) -> list[Path]:
        """The folder of every cell that the store knows."""
        return self.storage.entries(self._base / "cells")

    def _cell_folder(self, cell_id: str) -> Path:
        return self._base / "cells" / cell_id

    def write_cell(self, cell: Cell) -> None:
        """Write ``cell.json``, which tells people what the cell is, unless it exists."""
        path = self._cell_folder(cell.id) / "cell.json"
        with contextlib.suppress(DamagedError):
            if read_json(self.storage, path) is not None:
                return
        self.storage.make_folder(path.parent)
        self.storage.replace(path, json_bytes(cell.describe()))

    def status(self, trainings: Iterable[Training], *, max_attempts: int = 1) -> dict[Training, TrainingStatus]:
        """Read the status of trainings, in the given order, as `status_of` does. Writes nothing."""
        asked = list(trainings)
        statuses = self.storage.each(lambda training: status_of(self.folder(training), max_attempts), asked)
        return dict(zip(asked, statuses, strict=True))

    def begin_launch(self, launch: str) -> None:
        """Let the machines of a launch see that this is its store."""
        self.storage.replace(self._launch(launch, "json"), json_bytes({"host": socket.gethostname()}))

    def sees_launch(self, launch: str) -> bool:
        """Whether `begin_launch` was called with a launch; no if the store cannot be read."""
        return self.storage.appeared(self._launch(launch, "json"))

    def write_probe(self) -> None:
        """Find out whether this machine can write the store."""
        self.storage.now(self._base / "launches")

    def ask_to_stop(self, launch: str) -> None:
        """Ask the workers of a launch to save their state and stop."""
        self.storage.replace(self._launch(launch, "stop"), b"")

    def is_asked_to_stop(self, launch: str) -> bool:
        """Whether a launch's workers are to save and stop; no if the store cannot be read."""
        return self.storage.appeared(self._launch(launch, "stop"))

    def end_launch(self, launch: str) -> None:
        """Remove what `begin_launch` and `ask_to_stop` wrote."""
        for suffix in ("json", "stop"):
            with contextlib.suppress(OSError):
                self.storage.remove(self._launch(launch, suffix))

    def _launch(self, launch: str, suffix: str) -> Path:
        return self._base / "launches" / f"{launch}.{suffix}"

    def write_results(self, sweep: str, content: bytes) -> None:
        """Write the results table of a sweep, as ``sweeps/<sweep>/results.parquet``."""
        if not self.exists:
            raise StorageError(f"the results folder {self.location} is gone")
        path = self._results(sweep)
        self.storage.make_folder(path.parent)
        self.storage.replace(path, content)

    def read_results(self, sweep: str) -> bytes | None:
        """Read what `write_results` wrote; None where there is none."""
        return self.storage.read(self._results(sweep))

    def _results(self, sweep: str) -> Path:
        return self._base / "sweeps" / sweep / RESULTS_FILE
