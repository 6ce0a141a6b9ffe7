"""Reads every file that a sweep has in the store, and says which are damaged, and which are of other data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.columns import read_columns
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.runners.store.storage.folders import read_json
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import Training, content_id, to_mapping

_TRAINING = re.compile(r"(.+)-([0-9a-f]{16})")
"""The name of a training's folder: its stage and key."""


def damaged_files(store: Store, trainings: Sequence[Training], *, set_aside: bool = False) -> list[str]:
    """Compare the files of trainings, and the cached features, with their checksums.

    Damaged states and features can stay: whoever reads them verifies them.

    Args:
        store: the store.
        trainings: the trainings. The states of those that are running are left out, because they change.
        set_aside: move the finished trainings that are damaged away, so that the next launch trains them again.
            Without it nothing is written.

    Returns:
        A line for each training or file that is damaged, missing or unreadable.

    Raises:
        StorageError: one cannot be moved away.
    """
    found = []
    for training, status in store.status(trainings, thorough=True).items():
        if status.damaged or status.unreadable:
            found.append(f"{training.name}: {status.reason}")
        if status.damaged and set_aside:
            store.set_aside(training, "damaged")
        if not status.damaged and status.state not in ("done", "running") and not status.unreadable:
            try:
                found += [f"{training.name}: {line}" for line in store.folder(training).damaged_states()]
            except StorageError as error:
                found.append(f"{training.name}: {error}")
    for path in sorted(store.features.glob("*.safetensors")):
        try:
            read_columns(path)
        except DamagedError as error:
            found.append(f"cached features: {path} is damaged: {error}")
        except OSError as error:
            found.append(f"cached features: cannot read {path}: {error.strerror or error}")
    return found


def of_other_data(store: Store, data: DataConfig, fingerprint: str) -> list[str]:
    """The trainings in the store, of whatever launch, that finished with other data than there are now.

    Args:
        store: the store.
        data: the settings of the data. Trainings with others are left out, and those whose description is damaged.
        fingerprint: of the data as they are now.
    """
    asked = content_id(to_mapping(data))

    def of_cell(folder: Path) -> list[str]:
        cell, found = dict[str, Any](), list[str]()
        with suppress(DamagedError):
            cell = read_json(store.storage, folder / "cell.json") or {}
        if cell and cell["data_fingerprint"] != fingerprint and content_id(cell["data"]) == asked:
            for name in filter(None, (_TRAINING.fullmatch(path.name) for path in store.storage.entries(folder))):
                with suppress(DamagedError):
                    if store.folder_of(folder.name, *name.groups()).result() is not None:
                        found.append(f"{cell['label']} ({name[1]}): data {cell['data_fingerprint']}")
        return found

    return [line for lines in store.storage.each(of_cell, store.cell_folders()) for line in lines]
