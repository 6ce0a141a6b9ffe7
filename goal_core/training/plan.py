"""The plan of a unit's training, the events that it reports and who listens to them, and the files of a training."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict

from goal_sweep.goal_core.basics import errors
from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.basics.registry import place_in
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.models import ModelConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training.config import Compile, Precision, Sharing, StageConfig


class EpochRecord(TypedDict):
    """The metrics of one training after one epoch."""

    epoch: int
    """Counted from 1."""
    time: float
    """When the epoch ended, seconds since 1970."""
    metrics: dict[str, float]
    """By name: `train/...`, `val/...`, `time/...`, `system/...`."""


class TrainingFiles(Protocol):
    """The files of one training. Every write but a log line is atomic, and refused once another process owns it."""

    def path(self, name: str) -> Path:
        """A path on this machine with the content of a file; it does not exist where there is no such file."""

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a temporary file, then put it in place under ``name``."""

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        """Make the metrics file contain exactly these epochs."""

    def log(self, line: str) -> None:
        """Add a line to the log."""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which alone means that the training is done, and remove what nobody needs then."""

    def discard(self, name: str) -> None:
        """Remove a file that is no longer needed."""


class FolderFiles(TrainingFiles):
    """The files in a folder of this machine, made if it is missing; no other process has the training."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        temporary = self.path(f"{name}.new")
        write(temporary)
        temporary.replace(self.path(name))

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        self.path("metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def log(self, line: str) -> None:
        with self.path("log.txt").open("a") as file:
            file.write(f"{line}\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        self.path("result.json").write_bytes(json_bytes(result))

    def discard(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)


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
    """Settings of the stage that this training has otherwise than its unit, of `config.OF_ONE_TRAINING` only."""


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
    compile: Compile = "off"
    """Whether image backbones are compiled; `auto`: where that pays."""
    deterministic: bool = False
    """Whether a GPU takes only kernels that give the same bits in every run."""
    sharing: Sharing = "auto"
    """How its cells run side by side; see :func:`goal_core.training.shared_backbone.choose_path`."""
    cache: Path | None = None
    """Folder for the frozen backbone's features; None keeps them in memory only."""
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
    """`diverged`, `collapsed`, `inputs`, `storage`, `refused`, `damaged`, `memory`, `too_large`, `device` or `error`.

    The first two would happen again. `inputs`: data or weights are missing, or not what the id says. `refused`: the
    storage takes the credentials no more. Smaller chunks of a batch help against `memory`, not against `too_large`.
    After `device` the process cannot use its GPU.
    """
    reason: str
    """One line."""
    trace: str

    @classmethod
    def because_of(cls, key: str, error: Exception) -> TrainingFailed:
        """The failure of a training by an exception."""
        text = " ".join(str(error).split()) or "no message"
        place = "" if isinstance(error, errors.GoalError) else f"{place_in(error)}{type(error).__name__}: "
        trace = "".join(traceback.format_exception(error))
        return cls(key=key, kind=failure_kind(error), reason=f"{place}{text}", trace=trace)


def failure_kind(error: Exception) -> str:
    """The kind of a failure; see :attr:`TrainingFailed.kind`."""
    import torch  # which readers of events do without

    from goal_sweep.goal_core.basics.devices import is_out_of_memory
    from goal_sweep.goal_core.evaluation.retrieval import NonFiniteEmbeddingError
    from goal_sweep.goal_core.objectives.gradient_objective import NonFiniteError

    kinds: dict[str, Any] = {  # of which the first counts
        "refused": errors.UnfinishedError,
        "storage": OSError,
        "inputs": errors.DataError | errors.WeightsError,
        "damaged": DamagedError,
        "diverged": errors.DivergedError | NonFiniteError | NonFiniteEmbeddingError,
        "collapsed": errors.CollapsedError,
        "too_large": errors.TooLargeError,
        "device": torch.AcceleratorError,
    }
    if is_out_of_memory(error):
        return "memory"
    return next((kind for kind, of in kinds.items() if isinstance(error, of)), "error")


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
