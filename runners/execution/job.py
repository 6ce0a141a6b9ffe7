"""A unit as it is sent to a worker, and what a launch and Ray tell each other of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.training.config import Sharing
from goal_sweep.sweeps.schema import ResourceConfig
from goal_sweep.sweeps.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit, with all that a worker needs to train it."""

    unit: Unit
    sharing: Sharing
    resources: ResourceConfig
    plugins: tuple[Plugin, ...]
    """That define parts of one's own, which the worker runs first."""
    store: str
    launch: str
    """The launch for which the worker claims its trainings."""
    elsewhere: bool
    """Whether other machines may train it, if the worker's lacks something."""
    code: str
    """The driver's `runners.execution.inputs.code_digest`."""
    software: Mapping[str, str]
    """The driver's `runners.execution.inputs.software`."""


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
        last = lines[-1] if lines else "its worker died"
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
