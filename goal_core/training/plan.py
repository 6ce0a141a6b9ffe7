"""What a unit is told to train, and what it tells back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

from goal_core.data.config import DataConfig
from goal_core.models.config import ModelConfig
from goal_core.objectives.config import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One training of a unit: what is its own."""

    key: str
    """Names the training in events and among the unit's files; no two of a unit share it."""
    cell_id: str
    """The trained model's id, as its checkpoints and its result state it."""
    objective: ObjectiveConfig
    init: Path | None
    """Best weights of the stage before, from which this stage starts; None in the first stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """Trainings of one stage that run side by side, and all that they share."""

    trainings: tuple[TrainingPlan, ...]
    data: DataConfig
    model: ModelConfig
    seed: int
    stage: StageConfig
    precision: Precision = "fp32"
    device: str = "cpu"
    """`cpu` or `cuda`."""
    threads: int = 1
    """Torch's CPU threads. Part of what fixes the last bit of a number, so it never depends on sharing."""
    loader_workers: int = 0
    """Processes that decode images; 0 decodes in the training process. The numbers do not depend on it."""
    cache: Path | None = None
    """Folder for the frozen backbone's features; None keeps them in memory only."""


class EpochRecord(TypedDict):
    """The metrics of one training after one epoch."""

    epoch: int
    """Counted from 1."""
    time: float
    """When the epoch ended, seconds since 1970."""
    metrics: dict[str, float]
    """By name: `train/...`, `val/...`, `time/...`."""


class TrainingFiles(Protocol):
    """Where a training keeps its files. Every write is atomic, and refused once another attempt owns the training."""

    def path(self, name: str) -> Path:
        """Where a file of this stage lies (it need not exist)."""

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a temporary file, then put it in place under ``name``."""

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        """Make the metrics file hold exactly these epochs."""

    def log(self, line: str) -> None:
        """Add a line to the stage's log."""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, last of all: it alone means that the stage is done."""

    def discard(self, name: str) -> None:
        """Remove a file that a finished stage no longer needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone:
    """A training finished an epoch."""

    key: str
    record: EpochRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDone:
    """A training is done; its result is in its folder."""

    key: str
    result: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFailed:
    """A training failed and left the unit; the others go on."""

    key: str
    kind: str
    """`diverged`, `collapsed`, `storage`, `memory` or `error`."""
    reason: str
    trace: str


TrainingEvent = EpochDone | TrainingDone | TrainingFailed


class Listener(Protocol):
    """Who hears how a unit is doing."""

    def step(self, done: int, total: int) -> None:
        """A step of the whole unit is over: ``done`` of ``total`` steps of the stage."""

    def alive(self) -> None:
        """Work other than steps goes on (a pass over a split)."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """What happened to the cells since the last call, at most once an epoch."""


class SilentListener:
    """A listener that ignores what it hears."""

    def step(self, done: int, total: int) -> None:
        """Ignore."""

    def alive(self) -> None:
        """Ignore."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Ignore."""
