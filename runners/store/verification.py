"""Reads every file that a sweep has in the store, and says which are damaged, and which are of other data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import WeightsError
from goal_core.checkpoints import read_mapped
from runners.store.records.result_content import RESULT
from runners.store.storage.folders import read_json
from runners.store.store import Store
from sweeps import Training, content_id


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
            read_mapped(path)
        except (DamagedError, StorageError, WeightsError) as error:
            found.append(f"cached features: {error}")
    return found


def of_other_data(store: Store, trainings: Sequence[Training], fingerprint: str) -> list[str]:
    """Find the finished trainings that differ from a sweep's in nothing but their data.

    Args:
        store: the store.
        trainings: the sweep's trainings.
        fingerprint: of its data as they are now.

    Returns:
        A line for each.

    Raises:
        StorageError: the store cannot be read.
    """
    wanted = {_without_data(training.cell.describe()) for training in trainings}
    found = []
    for folder in store.cell_folders():
        try:
            cell = read_json(store.storage, folder / "cell.json")
        except DamagedError:
            continue
        if cell is None or cell["data_fingerprint"] == fingerprint or _without_data(cell) not in wanted:
            continue
        for path in store.storage.entries(folder):
            if "." not in path.name and store.storage.exists(path / RESULT):
                found.append(f"{cell['label']} ({path.name.rpartition('-')[0]}): data {cell['data_fingerprint']}")
    return found


def _without_data(cell: Mapping[str, Any]) -> str:
    """Identifies a described cell whatever its data hold, and wherever they lie."""
    kept = {key: value for key, value in cell.items() if key not in ("id", "data_fingerprint")}
    return content_id({**kept, "data": {**cell["data"], "root": None}})
