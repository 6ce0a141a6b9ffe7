"""Reads every file that a sweep has in the store: which are damaged, and which results had other data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import WeightsError
from goal_core.checkpoints import read_mapped
from goal_core.data import DataConfig
from runners.store.records import RESULT
from runners.store.storage import read_json
from runners.store.store import Store
from sweeps import Training, to_mapping


def damaged_files(store: Store, trainings: Sequence[Training], *, mark: bool = False) -> list[str]:
    """Compare the files of trainings, and the cached features, with their checksums.

    Damaged states and features need no mark: whoever reads them verifies them.

    Args:
        store: the store.
        trainings: the trainings. The states of those that are running are left out, because they change.
        mark: note in the store which finished trainings are damaged, so that the next launch reads all of them too and
            trains them again. Without it nothing is written.

    Returns:
        A line for each training or file that is damaged, missing or unreadable.

    Raises:
        StorageError: a mark cannot be written.
    """
    found = []
    for training, status in store.status(trainings, thorough=True).items():
        if status.damaged or status.unreadable:
            found.append(f"{training.name}: {status.reason}")
        if status.damaged and mark:
            store.suspect(training, status.reason)
        if not status.damaged and status.state not in ("done", "running") and not status.unreadable:
            try:
                found += [f"{training.name}: {line}" for line in store.folder(training).damaged_states()]
            except StorageError as error:
                found.append(f"{training.name}: {error}")
    for path in sorted(store.features.glob("*.safetensors")):
        try:
            read_mapped(path)
        except (DamagedError, StorageError, WeightsError) as error:
            found.append(f"cached features: {error}")
    return found


def results_of_other_data(store: Store, data: DataConfig, fingerprint: str) -> dict[str, list[str]]:
    """The finished trainings in the store on data of the same settings that were not those that are there now.

    Args:
        store: the store.
        data: the settings of the data.
        fingerprint: of the data that are there now.

    Returns:
        By fingerprint the names of their cells.

    Raises:
        StorageError: the store cannot be read.
    """
    found: dict[str, list[str]] = {}
    same = {name: value for name, value in to_mapping(data).items() if name != "root"}
    folders = store.cell_folders()
    for folder, files in zip(folders, store.storage.each(store.storage.listed, folders), strict=True):
        with suppress(DamagedError):  # which is said elsewhere
            cell = read_json(store.storage, folder / "cell.json") or {}
            settings = {name: value for name, value in cell.get("data", {}).items() if name != "root"}
            had = str(cell.get("data_fingerprint", ""))
            if settings == same and had != fingerprint and any(path.name == RESULT for path in files):
                found.setdefault(had, []).append(str(cell["label"]))
    return found
