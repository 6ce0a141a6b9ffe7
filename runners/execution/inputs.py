"""What a worker compares with the driver before it trains: the code, the data and the first weights.

Another machine may have an old copy of the data or other code, and data may change while a sweep trains. Numbers from
them would stand under an id that says otherwise.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from goal_sweep import goal_core, runners, sweeps
from goal_sweep.goal_core.basics.atomic import retried
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.models.frameworks import initial_weights_id
from goal_sweep.runners.store import BEST, Store
from goal_sweep.runners.store.records.provenance import versions_of
from goal_sweep.sweeps import Unit, content_id

if TYPE_CHECKING:
    from goal_sweep.goal_core.training import TrainingPlan, UnitPlan


class InputsDifferError(GoalError):
    """This machine would train with other code, data or weights than the ids of its unit state."""


class UnfitMachineError(GoalError):
    """This machine lacks what a unit needs, and another one may have it."""


_PACKAGES = ("torch", "torchvision", "timm", "transformers", "tokenizers", "numpy", "pillow")
"""Packages that numbers depend on. Ray itself refuses machines with another Python or Ray."""
_VISIBLE_S = 10.0
"""Seconds that a network file system may take to show a new file."""


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


def software() -> dict[str, str]:
    """The versions of Python and of the packages that numbers depend on, without what a build adds (``+cu128``)."""
    return {name: text.partition("+")[0] for name, text in versions_of(_PACKAGES).items()}


def check_machine(store: Store, launch_id: str, device: str) -> None:
    """Check that this machine sees the driver's store and has the device of a unit.

    Args:
        store: the store, as this machine sees it.
        launch_id: the driver's launch, whose record the driver has written there.
        device: ``cuda`` or ``cpu``.

    Raises:
        UnfitMachineError: it does not; nothing was written but a probe.
    """
    host, deadline = socket.gethostname(), time.monotonic() + _VISIBLE_S
    while store.drivers.state(launch_id) is None:
        if time.monotonic() > deadline:
            raise UnfitMachineError(
                f"{host} does not see the store of the launch at {store.location}; every machine must see it "
                "under this path, on a shared file system"
            )
        time.sleep(0.5)
    try:
        store.drivers.file_time()
    except OSError as error:
        raise UnfitMachineError(f"{host} cannot write the store {store.location}: {error}") from error
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise UnfitMachineError(f"{host} has no GPU that torch {torch.__version__} can use (resources.gpus)")


def check_software(expected: Mapping[str, str]) -> None:
    """Compare this machine's versions with the driver's.

    Args:
        expected: the driver's `software`; packages that it does not name are not compared.

    Raises:
        InputsDifferError: some differ.
    """
    here = {name: software().get(name, "missing") for name in expected}
    different = [f"{name} {here[name]}, not {wanted}" for name, wanted in expected.items() if here[name] != wanted]
    if different:
        raise InputsDifferError(
            f"{socket.gethostname()} has other versions than the machine that launched the sweep: "
            f"{'; '.join(different)}"
        )


def check_code(code: str | None, did: Literal["launched", "submitted"] = "launched") -> None:
    """Compare this process's code with the driver's, or with that which submitted a batch job.

    Args:
        code: the other's `code_digest`; None compares nothing.
        did: what the other machine did.

    Raises:
        InputsDifferError: it differs.
    """
    if code is not None and code != code_digest():
        other = "submit again" if did == "submitted" else "`goal-sweep submit --to ray`, which sends this one along"
        mend = f"install the same version there, or {other}"
        raise InputsDifferError(
            f"{socket.gethostname()} has other code of goal-sweep ({Path(str(goal_core.__file__)).parent}) than the "
            f"machine that {did} the sweep; {mend}"
        )


def on_this_machine(plan: UnitPlan, unit: Unit, store: Store) -> UnitPlan:
    """A plan whose first weights and cached features are files of this machine.

    Raises:
        StorageError: the store cannot be read.
    """
    before = {training.key: training.before for training in unit.trainings}

    def local(one: TrainingPlan) -> TrainingPlan:
        first = before[one.key]
        if first is None:
            return one
        folder = store.folder(first)
        return replace(one, init=folder.path(BEST))

    return replace(plan, trainings=tuple(map(local, plan.trainings)), cache=store.features, packs=store.packs)


def open_inputs(unit: Unit, code: str, indexes: Path) -> Dataset:
    """Open a unit's data, and check that its trainings would be what their ids state.

    Images are not looked at here: each is compared with the index when it is read.

    Args:
        unit: the unit.
        code: the driver's `code_digest`.
        indexes: the store's folder of indexes.

    Returns:
        The data.

    Raises:
        InputsDifferError: the code, the data or the first weights differ from the driver's.
        GoalError: the data or the weights are missing here, or broken.
        OSError: they cannot be read, also not after a while.
    """
    check_code(code)

    def opened() -> Dataset:
        dataset = open_dataset(unit.trainings[0].cell.data, indexes, renew=False)
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
        elif content_id(cell.settings) != cell.id:
            what = f"the code of {cell.objective.name}"
        else:
            continue
        raise InputsDifferError(
            f"{what} on {socket.gethostname()} differ from those of the launch; nothing was trained with them"
        )
