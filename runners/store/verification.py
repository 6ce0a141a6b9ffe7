"""Reads every file that a sweep has in the store, and says which are damaged."""

from __future__ import annotations

from collections.abc import Sequence

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.columns import read_columns
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import Training


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
