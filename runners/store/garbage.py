"""What a store keeps although nobody needs it any more, for `goal-sweep gc`.

A finished training needs the files that its result states, its attempts and its log. An unfinished one needs all it
has, because a launch continues from it. So does one whose state another training continues, until that is done; should
that be lost afterwards, both are trained again. Features are computed again where they are missing, so they are needed
as long as some training that the store knows may read them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from goal_core.basics.atomic import is_leftover
from runners.store.leases.heartbeat import LeaseHeldError
from runners.store.records.result_content import RESULT
from runners.store.storage.folders import LOCAL, Storage, Written
from runners.store.store import Store
from runners.store.trainings.files import WORKING
from sweeps import Training

Kind = Literal["states", "set aside", "leftovers", "features"]
_ASIDE = re.compile(r"(.+)\.(?:replaced|damaged)-\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Files that can be removed together."""

    kind: Kind
    what: str
    """Whose they are."""
    files: Mapping[Path, int]
    """The bytes of each."""
    storage: Storage
    folder: Path | None = None
    """The folder that they are in, if all of it can be removed."""

    @property
    def bytes(self) -> int:
        """The bytes of all."""
        return sum(self.files.values())


def find_garbage(store: Store, trainings: Sequence[Training]) -> list[Garbage]:
    """Find what can be removed: of a sweep's cells, and what dead processes left anywhere in the store.

    Args:
        store: the store. Nothing in it is changed.
        trainings: all trainings of the sweep.

    Raises:
        StorageError: the store cannot be read.
    """
    statuses, storage = store.status(trainings), store.storage
    names = {store.folder(training).folder: training.name for training in trainings}
    cells = list(dict.fromkeys(folder.parent for folder in names))
    listed = dict(zip(cells, storage.each(storage.listed, cells), strict=True))
    garbage = []
    needed = {one.before for one, status in statuses.items() if one.continues and status.state != "done"}
    for training, status in statuses.items():
        if status.state == "done" and training not in needed:
            folder = store.folder(training).folder
            garbage.append(_states(storage, training.name, folder, listed[folder.parent], status.result))
    for files in listed.values():
        garbage += _set_aside(storage, files, names)
        sizes = {path: written.bytes for path, written in files.items() if is_leftover(path)}
        garbage.append(Garbage(kind="leftovers", what="interrupted writes", files=sizes, storage=storage))
    if all(status.state == "done" for status in statuses.values()) and not _has_unfinished(store):
        # Of a store in a bucket, they lie on this machine too.
        features = {path: written.bytes for path, written in LOCAL.listed(store.features).items()}
        garbage.append(Garbage(kind="features", what="of frozen backbones", files=features, storage=LOCAL))
    return [each for each in garbage if each.files]


def remove_garbage(store: Store, sweep: str, trainings: Sequence[Training]) -> list[Garbage]:
    """Remove what `find_garbage` finds, while no launch works on the store. Launches of this sweep are kept out.

    Args:
        store: the store.
        sweep: the sweep's name, which a launch that is kept out shows.
        trainings: all trainings of the sweep.

    Returns:
        What was removed.

    Raises:
        LeaseHeldError: a driver works on the store; nothing was removed.
        StorageError: the store cannot be read, or something not removed.
    """
    for driver in store.drivers.all():
        if driver.alive:
            raise LeaseHeldError(f"the store is in use by {driver.describe()}; nothing was removed")
    with store.heartbeat(f"gc of {sweep}") as heartbeat:
        heartbeat.start(training.key for training in trainings)
        removed = find_garbage(store, trainings)
        for garbage in removed:
            if garbage.folder is not None:
                garbage.storage.remove_folder(garbage.folder, first=RESULT)
                continue
            for path in garbage.files:
                garbage.storage.remove(path)
        return removed


def _states(
    storage: Storage, name: str, folder: Path, listed: Mapping[Path, Written], result: Mapping[str, Any]
) -> Garbage:
    """What a finished training keeps beside the files of its result."""
    kept = {stated["name"] for stated in result["files"].values()}
    files = {
        path: written.bytes
        for path, written in listed.items()
        if path.parent == folder and WORKING.fullmatch(path.name) and path.name not in kept
    }
    return Garbage(kind="states", what=name, files=files, storage=storage)


def _set_aside(storage: Storage, listed: Mapping[Path, Written], names: Mapping[Path, str]) -> Iterator[Garbage]:
    """Folders of the sweep's trainings that a launch moved away, and damaged files that it renamed."""
    folders: dict[Path, dict[Path, int]] = defaultdict(dict)
    damaged: dict[str, dict[Path, int]] = defaultdict(dict)
    for path, written in listed.items():
        for parent in path.parents:
            aside = _ASIDE.fullmatch(parent.name)
            if aside and parent.with_name(aside[1]) in names:
                folders[parent][path] = written.bytes
        if path.name.endswith(".damaged") and path.parent in names:
            damaged[names[path.parent]][path] = written.bytes
    for folder, files in folders.items():
        what = names[folder.with_name(_ASIDE.sub(r"\1", folder.name))]
        yield Garbage(kind="set aside", what=f"{what}: {folder.name}", files=files, storage=storage, folder=folder)
    for what, files in damaged.items():
        yield Garbage(kind="set aside", what=f"{what}: damaged files", files=files, storage=storage)


def _has_unfinished(store: Store) -> bool:
    """Whether the store knows of a training, of whatever sweep, that is not finished."""
    for listed in store.storage.each(store.storage.listed, store.cell_folders()):
        trainings = {path.parent for path in listed if path.parent.parent.parent.name == "cells"}
        trainings = {folder for folder in trainings if not _ASIDE.fullmatch(folder.name)}
        if not trainings or any(folder / RESULT not in listed for folder in trainings):
            return True
    return False
