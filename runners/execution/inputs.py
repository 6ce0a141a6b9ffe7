"""What a worker compares with the driver before it trains: the code, the data and the first weights.

Another machine may have an old copy of the data or other code, and data may change while a sweep trains. Numbers from
them would stand under an id that says otherwise.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import goal_core
import runners
import sweeps
from goal_core.atomic import retried
from goal_core.checkpoints import initial_weights_id
from goal_core.data import Dataset, open_dataset
from goal_core.errors import GoalError
from runners.store import BEST, Store
from sweeps import Cell, Unit, cell_id

if TYPE_CHECKING:
    from goal_core.training import TrainingPlan, UnitPlan


class InputsDifferError(GoalError):
    """This machine would train with other code, data or weights than the ids of its unit state."""


def source_hash(folders: Sequence[Path]) -> str:
    """Hash the names and contents of the Python files in some folders: 16 hex digits."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


_CODE = source_hash([Path(str(package.__file__)).parent for package in (goal_core, sweeps, runners)])
# Computed when this module is loaded, together with the code: files may change on the disk while a launch runs.


def code_digest() -> str:
    """Hash of the source of goal_core, sweeps and runners that this process has loaded: 16 hex digits."""
    return _CODE


def check_code(code: str) -> None:
    """Compare this process's code with the driver's.

    Args:
        code: the driver's `code_digest`.

    Raises:
        InputsDifferError: it differs.
    """
    if code != code_digest():
        raise InputsDifferError(
            f"{socket.gethostname()} has other code of goal-sweep ({Path(str(goal_core.__file__)).parent}) than the "
            "machine that launched the sweep; install the same version there"
        )


def on_this_machine(plan: UnitPlan, unit: Unit, store: Store) -> UnitPlan:
    """A plan whose first weights and cached features are files of this machine.

    Raises:
        StorageError: the store cannot be read.
    """
    before = {training.key: training.before for training in unit.trainings}

    def local(one: TrainingPlan) -> TrainingPlan:
        first = before[one.key]
        return one if first is None else replace(one, init=store.folder(first).path(BEST))

    return replace(plan, trainings=tuple(map(local, plan.trainings)), cache=store.features)


def open_inputs(unit: Unit, code: str) -> Dataset:
    """Open a unit's data, and check that its trainings would be what their ids state.

    Args:
        unit: the unit.
        code: the driver's `code_digest`.

    Returns:
        The data.

    Raises:
        InputsDifferError: the code, the data or the first weights differ from the driver's.
        GoalError: the data or the weights are missing here, or broken.
        OSError: they cannot be read, also not after a while.
    """
    check_code(code)

    def opened() -> Dataset:
        dataset = open_dataset(unit.trainings[0].cell.data)
        check_inputs(unit, dataset)
        return dataset

    return retried(opened)


def check_inputs(unit: Unit, dataset: Dataset) -> None:
    """Compute the ids of a unit's cells with what this machine has.

    Args:
        unit: the unit.
        dataset: its data, as opened here.

    Raises:
        InputsDifferError: the data, the first weights, or the code of an objective differ.
        WeightsError: weights are missing here.
    """
    for training in unit.trainings:
        cell = training.cell
        weights_id = initial_weights_id(cell.model)
        if dataset.fingerprint != cell.data_fingerprint:
            what = f"the data ({dataset.fingerprint}, not {cell.data_fingerprint})"
        elif weights_id != cell.weights_id:
            what = f"the first weights ({weights_id}, not {cell.weights_id})"
        elif _id_here(cell) != cell.id:
            what = f"the code of {cell.objective.name}"
        else:
            continue
        raise InputsDifferError(
            f"{what} on {socket.gethostname()} differ from those of the launch; nothing was trained with them"
        )


def _id_here(cell: Cell) -> str:
    return cell_id(
        data=cell.data,
        data_fingerprint=cell.data_fingerprint,
        model=cell.model,
        weights_id=cell.weights_id,
        objective=cell.objective,
        seed=cell.seed,
    )
