"""A unit as it is sent to a worker, what a launch and Ray tell each other of it, and what the worker compares first.

Another machine may have an old copy of the data or other code, and data may change while a sweep trains. Numbers from
them would stand under an id that says otherwise.
"""

from __future__ import annotations

import hashlib
import re
import socket
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

from goal_sweep import goal_core, runners, sweeps
from goal_sweep.goal_core.basics.atomic import retried
from goal_sweep.goal_core.basics.errors import DataError, GoalError
from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.models.frameworks import initial_weights_id
from goal_sweep.runners.store import Store
from goal_sweep.runners.store.provenance import versions_of
from goal_sweep.sweeps import ExecutionConfig, ResourceConfig, Unit
from goal_sweep.sweeps.identity import cell_settings, content_id

_PACKAGES = ("torch", "torchvision", "timm", "transformers", "tokenizers", "numpy", "pillow")
"""Packages that numbers depend on. Ray itself refuses machines with another Python or Ray."""
_VISIBLE_S = 10.0
"""Seconds that a network file system may take to show a new file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit, with all that a worker needs to train it."""

    unit: Unit
    execution: ExecutionConfig
    resources: ResourceConfig
    plugins: tuple[Plugin, ...]
    """That define parts of one's own, which the worker runs first."""
    store: str
    launch: str
    """The launch for which the worker claims its trainings."""
    elsewhere: bool
    """Whether other machines may train it, if the worker's lacks something."""
    code: str
    """The driver's `runners.execution.job.CODE_DIGEST`."""
    software: Mapping[str, str]
    """The driver's `runners.execution.job.software`."""


class Start(NamedTuple):
    """A start of a unit: one trial of Tune."""

    number: int
    job: UnitJob
    avoid: Sequence[str] = ()


class Death(NamedTuple):
    """The end of a worker that was not to end."""

    kind: Literal["died", "memory", "machine"]
    """`memory`: Ray ended it because the machine's memory was nearly full. `machine`: its machine is gone."""
    line: str

    @classmethod
    def read(cls, text: str) -> Death:
        """Read the error that Tune keeps of a failed trial: a traceback."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        last = textwrap.shorten(lines[-1], 200) if lines else "its worker died"
        if re.search(r"OutOfMemoryError|memory monitor|running low on memory|Ray killed this worker", text):
            return cls("memory", "Ray ended its worker, because the memory of the machine was nearly full")
        gone = r"[Nn]ode (?:has )?died|node (?:has been |is )?(?:terminated|unreachable)|NodeDiedError|raylet"
        return cls("machine" if re.search(gone, text) else "died", last)


class Work(Protocol):
    """What a launch gives to Tune, and hears from it, in the main thread."""

    @property
    def is_over(self) -> bool:
        """Whether nothing runs and nothing will."""

    @property
    def stopping(self) -> bool:
        """Whether all units should end now."""

    def next(self) -> Start | None:
        """The next unit that should start; None where none can now."""

    def reported(self, number: int, report: Mapping[str, Any]) -> None:
        """A worker has sent a report (`runners.execution.worker`), perhaps one that arrives after its end."""

    def ended(self, number: int, death: Death | None) -> None:
        """A start has ended: by itself, or because its worker died."""

    def step(self) -> None:
        """Called several times a second."""


class UnfitMachineError(GoalError):
    """This machine lacks what a unit needs, and another one may have it."""


def source_hash(folders: Sequence[Path]) -> str:
    """16 hex digits of the names and contents of the Python files in some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


# Computed when this module is loaded, together with the code: files may change on the disk while a launch runs.
CODE_DIGEST: Final = source_hash([Path(str(package.__file__)).parent for package in (goal_core, sweeps, runners)])
"""Hash of the source of goal_core, sweeps and runners that this process has loaded: 16 hex digits."""


def software() -> dict[str, str]:
    """The versions of Python and of the packages that numbers depend on, without what a build adds (``+cu128``)."""
    return {name: text.partition("+")[0] for name, text in versions_of(_PACKAGES).items()}


def check_machine(store: Store, job: UnitJob) -> None:
    """Raises `UnfitMachineError` where this machine lacks the driver's store, the device of a unit, or its versions."""
    host, deadline = socket.gethostname(), time.monotonic() + _VISIBLE_S
    while not store.sees_launch(job.launch):
        if time.monotonic() > deadline:
            raise UnfitMachineError(
                f"{host} does not see the store of the launch at {store.location}; every machine must see it "
                "under this path, on a shared file system"
            )
        time.sleep(0.5)
    try:
        store.write_probe()
    except OSError as error:
        raise UnfitMachineError(f"{host} cannot write the store {store.location}: {error}") from error
    if job.resources.gpus:
        import torch

        if not torch.cuda.is_available():
            raise UnfitMachineError(f"{host} has no GPU that torch {torch.__version__} can use (resources.gpus)")
    here = software()
    there = {name: wanted for name, wanted in job.software.items() if here.get(name) != wanted}
    if there:
        other = "; ".join(f"{name} {here.get(name, 'missing')}, not {wanted}" for name, wanted in there.items())
        raise UnfitMachineError(f"{host} has other versions than the machine that launched the sweep: {other}")


def check_code(code: str | None, did: Literal["launched", "submitted"] = "launched") -> None:
    """Raises `DataError` where this process's code is not that of the driver, or of who submitted a batch job.

    Args:
        code: the other's `CODE_DIGEST`; None compares nothing.
    """
    if code is not None and code != CODE_DIGEST:
        other = "submit again" if did == "submitted" else "`goal-sweep submit --to ray`, which sends this one along"
        mend = f"install the same version there, or {other}"
        raise DataError(
            f"{socket.gethostname()} has other code of goal-sweep ({Path(str(goal_core.__file__)).parent}) than the "
            f"machine that {did} the sweep; {mend}",
            key="",  # it is about no setting
        )


def open_inputs(unit: Unit, code: str, indexes: Path) -> Dataset:
    """Open a unit's data, and check that its trainings would be what their ids state.

    Images are not looked at here: each is compared with the index when it is read. Raises `GoalError` where code, data
    or weights differ from the driver's, are missing here, or broken, and `OSError` where they cannot be read, also not
    after a while.

    Args:
        code: the driver's `CODE_DIGEST`.
    """
    check_code(code)

    def opened() -> Dataset:
        dataset = open_dataset(unit.trainings[0].cell.data, indexes, renew=False)
        for training in unit.trainings:
            cell = training.cell
            weights_id = initial_weights_id(cell.model)
            if dataset.fingerprint != cell.data_fingerprint:
                what = f"the data ({dataset.fingerprint}, not {cell.data_fingerprint})"
            elif weights_id != cell.weights_id:
                what = f"the first weights ({weights_id}, not {cell.weights_id})"
            elif content_id(cell_settings(cell)) != cell.id:
                what = f"the code of {cell.objective.name}"
            else:
                continue
            raise DataError(
                f"{what} on {socket.gethostname()} differ from those of the launch; nothing was trained with them",
                key="",
            )
        return dataset

    return retried(opened)
