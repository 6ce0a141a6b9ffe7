"""What a store keeps although nobody needs it any more, for `goal-sweep gc`.

A finished training needs the files that its result states, its attempts and its log. An unfinished one needs all it
has, because a launch continues from it. Features are computed again where they are missing, so they are needed as long
as some training that the store knows may read them.
"""

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from goal_sweep.goal_core.basics.atomic import is_leftover
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.store.storage import LOCAL, Storage
from goal_sweep.runners.store.store import Store
from goal_sweep.runners.store.training import RESULT, WORKING
from goal_sweep.sweeps.cells import Training

Kind = Literal["states", "leftovers", "features"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Files that can be removed together."""

    kind: Kind
    what: str
    storage: Storage
    files: dict[Path, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes of all."""
        return sum(self.files.values())


def find_garbage(store: Store, trainings: Sequence[Training]) -> list[Garbage]:
    """Find what can be removed: of a sweep's cells, and what dead processes left there. Changes nothing."""
    statuses, storage = store.status(trainings), store.storage
    names = {store.folder(training).folder: training.name for training in trainings}
    kept = {  # of finished trainings, by folder: the files that their results state
        store.folder(training).folder: {stated["name"] for stated in status.result["files"].values()}
        for training, status in statuses.items()
        if status.state == "done"
    }
    found: dict[tuple[Kind, str], Garbage] = {}
    cells = list(dict.fromkeys(folder.parent for folder in names))
    for files in storage.each(lambda cell: storage.files(cell, below=True), cells):
        for path, written in files.items():
            if (key := _kind(path, names, kept)) is not None:
                found.setdefault(key, Garbage(kind=key[0], what=key[1], storage=storage)).files[path] = written.bytes
    if all(status.state == "done" for status in statuses.values()) and not _has_unfinished(store):
        # Of a store in a bucket, they lie on this machine too.
        features = {path: written.bytes for path, written in LOCAL.files(store.features, below=True).items()}
        if features:
            found["features", ""] = Garbage(kind="features", what="of frozen backbones", storage=LOCAL, files=features)
    return list(found.values())


def remove_garbage(store: Store, trainings: Sequence[Training]) -> list[Garbage]:
    """Remove what `find_garbage` finds, and return it. Raises `GoalError` where a training is running."""
    for training, status in store.status(trainings).items():
        if status.state == "running":
            raise GoalError(f"{training.name} is being trained by {status.holder}; nothing was removed")
    removed = find_garbage(store, trainings)
    for garbage in removed:
        for path in garbage.files:
            garbage.storage.remove(path)
        for folder in sorted({path.parent for path in garbage.files}, reverse=True):
            with contextlib.suppress(OSError):  # others have files there, or it is in a bucket
                folder.rmdir()
    return removed


def _kind(path: Path, names: Mapping[Path, str], kept: Mapping[Path, Set[str]]) -> tuple[Kind, str] | None:
    """What kind of garbage a file in a cell's folder is, and whose; None if somebody needs it."""
    if is_leftover(path):
        return "leftovers", "interrupted writes"
    if path.parent in kept and WORKING.fullmatch(path.name) and path.name not in kept[path.parent]:
        return "states", names[path.parent]
    return None


def _has_unfinished(store: Store) -> bool:
    """Whether the store knows of a training, of whatever sweep, that is not finished."""
    for listed in store.storage.each(lambda cell: store.storage.files(cell, below=True), store.cell_folders()):
        trainings = {path.parent for path in listed if path.parent.parent.parent.name == "cells"}
        if any(folder / RESULT not in listed for folder in trainings):
            return True
    return False
