"""Reads every file that a sweep has in the store, and says which are damaged."""

from __future__ import annotations

from collections.abc import Sequence

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import WeightsError
from goal_core.checkpoints import read_mapped
from runners.store.store import Store
from sweeps import Training


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
