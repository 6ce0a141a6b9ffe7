"""A unit as it is sent to a worker, and who is told what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from goal_sweep.goal_core.training import TrainingEvent, UnitPlan
from goal_sweep.sweeps import Training, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit as it is sent to a worker."""

    unit: Unit
    plan: UnitPlan
    """The same unit in the form that the trainer takes."""
    store: str
    launch_id: str
    code: str
    """Hash of the driver's code; see `runners.execution.inputs.code_digest`."""
    software: Mapping[str, str]
    """The driver's versions; see `runners.execution.inputs.software`."""
    max_attempts: Mapping[Training, int]
    """Number of charged attempts allowed for each training, including those of earlier launches."""
    watchdog: int
    """Seconds without a step after which the unit counts as hung; 0 disables the check."""
    rank: tuple[int, float] = (0, 0.0)
    """Units start in the order of their ranks, as far as they wait for a device."""


class UnitObserver(Protocol):
    """Called in the driver's process while units run."""

    def started(self, job: UnitJob) -> None:
        """Called when a worker has begun a unit."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Called with what happened to the trainings of a unit."""

    def ended(self, job: UnitJob) -> None:
        """Called when a unit's worker has ended, however it ended."""

    def finished(self, job: UnitJob, error: str = "") -> Sequence[UnitJob]:
        """Called when a unit needs no further start. Returns the units that can start because of that.

        Args:
            job: the unit.
            error: the last error line, where its workers died too often.
        """

    def step(self) -> None:
        """Called several times a second, in the main thread. Signal handlers set here stay in place."""

    def note(self, line: str) -> None:
        """Called with a line for the user."""

    @property
    def stopping(self) -> bool:
        """Whether all units should stop."""
