"""How fast a unit trains here: a few real steps on the first images of its data, in a scratch folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goal_core.data import Dataset
from goal_core.data.dataset import SPLIT_NAMES
from goal_core.errors import GoalError
from goal_core.training.plan import EpochDone, EpochRecord, TrainingEvent, TrainingFailed, UnitPlan
from goal_core.training.trainer import UnitTrainer, use_device

EVAL_IMAGES = 128
"""Images of each of the small val and test splits: two chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpeed:
    """What a unit takes on this machine, in seconds of wall clock for all its cells together."""

    step_s: float
    """One optimiser step of every cell, the batch's making included."""
    eval_image_s: float
    """One image of an evaluated split, with its captions, in every cell."""
    feature_image_s: float
    """One image's pass through the frozen backbone, which all the unit's cells share; 0 where there is no such pass."""


def measure_speed(unit: UnitPlan, dataset: Dataset, *, steps: int = 8) -> UnitSpeed:
    """Train a unit for a few steps and evaluate it once, keeping nothing.

    Its cells start from their first weights, whatever they would start from: that costs the same.

    Args:
        unit: the unit.
        dataset: its data; only the first images are read.
        steps: optimiser steps, at least 2. The first is not counted, for it warms things up.

    Raises:
        GoalError: the data, the weights or the device are not what the unit needs, or a cell fails.
    """
    use_device(unit)
    stage = replace(unit.stage, epochs=1, warmup_epochs=0, frozen_epochs=0, ramp_epochs=0, lr_drops=())
    trainings = tuple(replace(training, init=None) for training in unit.trainings)
    with tempfile.TemporaryDirectory(prefix="goal-sweep-speed-") as scratch:
        files = {training.key: ScratchFolder(Path(scratch) / training.key) for training in trainings}
        clock = _Clock()
        trainer = UnitTrainer(replace(unit, trainings=trainings, stage=stage, cache=None), files, clock, dataset)
        # The tokenizer has the words of the whole dataset by now: a table of embeddings costs as much as it is long.
        trainer.dataset = _beginning(dataset, steps * stage.batch_size)
        train = trainer.dataset.splits["train"]
        began = time.perf_counter()
        trainer.trunk.prepare(train)
        prepared = time.perf_counter() - began
        once = trainer.shared is not None and not trainer.trunk.wants_pixels()
        trainer.run()
    if len(clock.steps) < 2 or not clock.eval_s:
        raise GoalError(f"the speed of {stage.name!r} cannot be measured: {clock.reason or 'the data are too small'}")
    return UnitSpeed(
        step_s=(clock.steps[-1] - clock.steps[0]) / (len(clock.steps) - 1),
        eval_image_s=sum(clock.eval_s) / trainer.dataset.splits["val"].num_images,
        feature_image_s=prepared / train.num_images if once else 0.0,
    )


def _beginning(dataset: Dataset, num_captions: int) -> Dataset:
    train = dataset.splits["train"]
    last = train.caption_image[min(num_captions, train.num_captions) - 1]
    sizes = {"train": int(last) + 1, "val": EVAL_IMAGES, "test": EVAL_IMAGES}
    return replace(dataset, splits={name: dataset.splits[name].first(sizes[name]) for name in SPLIT_NAMES})


class _Clock:
    """Notes when steps end, and how long each cell's evaluation took."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.eval_s: list[float] = []
        self.reason = ""

    def step(self, done: int, total: int) -> None:
        self.steps.append(time.perf_counter())

    def alive(self) -> None:
        pass

    def events(self, events: Sequence[TrainingEvent]) -> None:
        for event in events:
            if isinstance(event, EpochDone):
                self.eval_s.append(event.record["metrics"]["time/val_s"])
            elif isinstance(event, TrainingFailed):
                self.reason = event.reason


class ScratchFolder:
    """A cell's folder that keeps weights as long as the cell trains, and nothing else.

    Args:
        folder: must not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder

    def path(self, name: str) -> Path:
        """Where a file lies."""
        return self.folder / name

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        """Let ``write`` write the file."""
        write(self.path(name))

    def write_metrics(self, records: Sequence[EpochRecord]) -> None:
        """Ignore."""

    def log(self, line: str) -> None:
        """Ignore."""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Ignore."""

    def discard(self, name: str) -> None:
        """Remove a file."""
        self.path(name).unlink(missing_ok=True)
