"""The results folder, the only truth about what has been trained.

::

    STORE/store.json                        the version of this layout
    STORE/launches/<launch id>.json|.stop   a launch that runs, and that its workers are to save and stop
    STORE/submissions/                      batch jobs (runners.cluster.backend)
    STORE/sweeps/<sweep>/results.parquet    the sweep's results table (runners.results); follows from the results
    STORE/cells/<cell id>/cell.json         description of the cell, written once
    STORE/cells/<cell id>/<stage>-<key>/    one training (runners.store.training)
        attempts/<n>.json  log.txt  metrics.jsonl  ranks.npz  result.json
        last.safetensors  best-<epoch>.safetensors

``result.json`` is written last, and it alone means done. Reading, including `status`, changes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import math
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError, make_scratch_folder
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.checkpoints.names import BEST, LAST
from goal_sweep.goal_core.data.formats.index import own_indexes
from goal_sweep.runners.store.attempts import counted_failures
from goal_sweep.runners.store.storage import LOCAL, Storage, read_json
from goal_sweep.runners.store.training import TrainingFolder
from goal_sweep.sweeps.cells import Cell, Training
from goal_sweep.sweeps.identity import to_mapping
from goal_sweep.sweeps.results import RESULTS_FILE

_VERSION = 6
CACHE = "GOAL_SWEEP_CACHE"
"""The environment variable that names another folder than ``~/.cache/goal-sweep``."""
_opening = threading.Lock()
State = Literal["waiting", "running", "done", "failed"]
"""`running`: a living process trains it. What a dead one left unfinished is `waiting`."""


class Store:
    """A store: a results folder on a local disk or NFS, or a place in a bucket of an object store.

    Its methods raise `StorageError` where it cannot be read or written. Raises `StorageError` where the location is a
    file, cannot be read, or another version wrote it.

    Args:
        location: the folder, which `prepare` creates, or ``s3://bucket/prefix``. A relative path starts at the
            current working directory.
        patience: seconds to wait for an object store that has not answered yet; None for those of a command.
    """

    def __init__(self, location: str | Path, *, patience: float | None = None) -> None:
        self.root = local_root(str(location))
        """The folder of this machine for what need not be shared: cached features, tracking, reports. Of a store in a
        folder, the folder itself."""
        self._base, self.storage, self.location = self.root, LOCAL, str(self.root)
        """The location is as every process of the launch can open it."""
        if (place := bucket_of(str(location))) is not None:
            with _opening:
                (self._base, self.storage), self.location = _bucket(*place, patience, os.getpid()), str(location)
        elif self.root.exists() and not self.root.is_dir():
            raise StorageError(f"store {self.root} is a file, not a folder")
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
        return TrainingFolder(self._base / "cells" / cell_id / f"{stage}-{key}", self.storage)

    def weights_of(self, row: Any) -> Path:
        """The weights of a finished training as a file of this machine.

        Args:
            row: that of the results table: a mapping, or a Series of pandas.
        """
        return self.folder_of(str(row["cell"]), str(row["stage"]), str(row["training"])).path(BEST)

    def cell_folders(self) -> list[Path]:
        """The folder of every cell that the store knows."""
        return self.storage.entries(self._base / "cells")

    def write_cell(self, cell: Cell) -> None:
        """Write ``cell.json``, which tells people what the cell is, unless it exists."""
        path = self._base / "cells" / cell.id / "cell.json"
        with contextlib.suppress(DamagedError):
            if read_json(self.storage, path) is not None:
                return
        self.storage.make_folder(path.parent)
        self.storage.replace(path, json_bytes({"label": cell.label, **to_mapping(cell)}))

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

    def results_file(self, sweep: str) -> Path:
        """The path of a sweep's results table, in `storage`."""
        return self._base / "sweeps" / sweep / RESULTS_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """The status of one training."""

    state: State
    reason: str = ""
    """Why it failed, last failed, was interrupted, or must be repeated."""
    attempts: int = 0
    failures: int = 0
    """Attempts that count against `resources.max_attempts`."""
    holder: str = ""
    epochs: int = 0
    """Epochs done, while it is running, or in the saved state from which it continues, while it waits."""
    best_rsum: float = math.nan
    """Highest val/rsum of these epochs; NaN before the first."""
    damaged: bool = False
    """Whether the reason is a damaged file, so that it must be repeated."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``result.json``; empty until it is done."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The final metrics; empty until it is done."""
        metrics: Mapping[str, float] = self.result.get("metrics", {})
        return metrics


def status_of(folder: TrainingFolder, max_attempts: int) -> TrainingStatus:
    """Read the status of one training. A file that is damaged or cannot be read is named in the reason.

    Raises `UnfinishedError` where the credentials for the store have expired, so that nothing can be read.

    Args:
        max_attempts: counted failures after which a training is failed instead of waiting for another try.
    """
    problem = ""
    try:
        try:
            if (result := folder.result()) is not None:
                return TrainingStatus(state="done", result=result, attempts=result["attempt"])
        except DamagedError as error:
            problem = str(error)
        return replace(_unfinished(folder, max_attempts, problem), damaged=bool(problem))
    except UnfinishedError:
        raise
    except OSError as error:
        return TrainingStatus(state="waiting", reason=str(error))


def _unfinished(folder: TrainingFolder, max_attempts: int, problem: str) -> TrainingStatus:
    attempts = folder.attempts.all()
    if not attempts:
        return TrainingStatus(state="waiting", reason=problem)
    newest, failures = attempts[-1], counted_failures(attempts)
    counts: dict[str, Any] = {"attempts": newest.n, "failures": failures}
    if folder.attempts.is_held(newest):
        return TrainingStatus(state="running", holder=newest.describe(), **_so_far(folder), **counts)
    if (newest.outcome == "failed" and newest.final) or (newest.outcome != "running" and failures >= max_attempts):
        reason = next((attempt.reason for attempt in reversed(attempts) if attempt.outcome == "failed"), "")
        return TrainingStatus(state="failed", reason=problem or reason, **counts)
    reason = "its process ended unexpectedly" if newest.outcome == "running" else newest.reason
    saved = _so_far(folder) if folder.storage.written(folder.folder / LAST) is not None else {}
    return TrainingStatus(state="waiting", reason=problem or reason, **saved, **counts)


def _so_far(folder: TrainingFolder) -> dict[str, Any]:
    rsums: list[float] = []
    with contextlib.suppress(DamagedError):  # the trainer will find it and repeat what it must
        rsums = [record["metrics"].get("val/rsum", -math.inf) for record in folder.records()]
    return {"epochs": len(rsums), "best_rsum": max(rsums, default=math.nan)}


@functools.cache
def _bucket(bucket: str, prefix: str, patience: float | None, pid: int) -> tuple[Path, Storage]:
    """The path that stands for a place in a bucket, and its storage: one in each process."""
    from goal_sweep.runners.store.bucket import FIRST_S, ObjectStorage

    scratch = make_scratch_folder()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    base = scratch / bucket / prefix
    return base, ObjectStorage(bucket, prefix, base, first=FIRST_S if patience is None else patience)


def local_root(location: str) -> Path:
    """The folder of this machine that belongs to a store: the store itself if it is a folder, else one in the cache."""
    if (place := bucket_of(location)) is None:
        return Path(location.removeprefix("file://")).expanduser().absolute()
    bucket, prefix = place
    identity = hashlib.sha256(f"{bucket} {prefix}".encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{bucket}-{prefix}").strip("-")[:60]
    cache = os.environ.get(CACHE) or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/goal-sweep"
    return Path(cache).expanduser() / "stores" / f"{name}-{identity}"


def bucket_of(location: str) -> tuple[str, str] | None:
    """The bucket of an object store, and the prefix in it; None if it is a folder. Settings have checked the rest."""
    if not location.startswith("s3://"):
        return None
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    return bucket, prefix.rstrip("/")
