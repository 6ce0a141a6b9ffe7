"""The plan of a unit's training, the events that it reports, and who listens to them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.plugins import Plugin, place_in
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.models import ModelConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training.config import Precision, Sharing, StageConfig
from goal_sweep.goal_core.training.files import EpochRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What belongs to one training of a unit alone."""

    key: str
    """Names the training in events and among the unit's files; unique in the unit."""
    cell_id: str
    """The trained model's id in its checkpoints and its result."""
    objective: ObjectiveConfig
    init: Path | None
    """Best weights of the previous stage, from which this stage starts; None in the first stage."""
    init_key: str = ""
    """The key of the training that these weights belong to."""
    own: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Settings of the stage that this training has otherwise than its unit, only of
    `goal_core.training.config.OF_ONE_TRAINING`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """Trainings of one stage that run side by side, and all that they share."""

    trainings: tuple[TrainingPlan, ...]
    data: DataConfig
    model: ModelConfig
    seed: int
    stage: StageConfig
    tested: bool = True
    """Whether the best weights are evaluated on the test split at the end. Candidates of a search are not."""
    precision: Precision = "fp32"
    device: str = "cpu"
    """`cpu` or `cuda`."""
    threads: int = 1
    """Torch's CPU threads. They affect the last bit of a number, so they never depend on sharing."""
    loader_workers: int = 0
    """Processes that decode images; 0 decodes in the training process. The numbers do not depend on it."""
    sharing: Sharing = "auto"
    """How its cells run side by side; see :func:`goal_core.training.sharing.choose_path`."""
    cache: Path | None = None
    """Folder for the frozen backbone's features; None keeps them in memory only."""
    plugins: tuple[Plugin, ...] = ()
    """What defines parts of one's own; each process of the unit runs them first."""
    packs: Path | None = None
    """Folder of packed images; None decodes the images from their files. The numbers do not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone:
    """A training finished an epoch."""

    key: str
    record: EpochRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDone:
    """A training is done, and its result is written."""

    key: str
    result: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFailed:
    """A training failed and left the unit; the others go on."""

    key: str
    kind: str
    """`diverged`, `collapsed`, `inputs`, `storage`, `refused`, `damaged`, `memory`, `too_large`, `device`, `died` or
    `error`.

    The first two would happen again. `inputs`: data or weights are missing, or not what the id says. `refused`: the
    storage takes the credentials no more. Smaller chunks of a batch help against `memory`, not against `too_large`.
    After `device` the process cannot use its GPU; `died`: it died or hung while it trained this cell alone.
    """
    reason: str
    """One line."""
    trace: str

    @classmethod
    def because_of(cls, key: str, error: Exception) -> TrainingFailed:
        """The failure of a training by an exception."""
        from goal_sweep.goal_core.training.failures import (
            failure_kind,  # with torch, which readers of events do without
        )

        text = " ".join(str(error).split()) or "no message"
        place = "" if isinstance(error, GoalError) else f"{place_in(error)}{type(error).__name__}: "
        return cls(
            key=key,
            kind=failure_kind(error),
            reason=f"{place}{text}",
            trace="".join(traceback.format_exception(error)),
        )


TrainingEvent = EpochDone | TrainingDone | TrainingFailed


class Callback:
    """Follows a unit while it trains. It ignores everything; a subclass overrides the methods that it needs."""

    def step(self) -> None:
        """The unit has completed one step."""

    def alive(self) -> None:
        """Work other than a step is in progress, such as a pass over a split."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """What happened to the trainings since the last call; called at most once an epoch."""

    def stopping(self) -> bool:
        """Whether the unit should save its cells and stop now; asked after every step and in long evaluations."""
        return False
