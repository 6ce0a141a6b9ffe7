"""One cell that takes real training steps, for benchmarks of a step; nothing is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from torch import Tensor

from goal_core.data import Batch, open_dataset
from goal_core.data.config import ImageConfig, ScenesConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training import ScratchFiles, SilentListener, TrainingPlan, UnitPlan, train_unit
from goal_core.training.cells.trainer import CellTrainer

CELL = TrainingPlan(key="cell", cell_id="cell", objective=ObjectiveConfig(pair="sig-ms", triplet="cir"), init=None)
Around = Callable[[CellTrainer, Callable[..., None], Tensor, Batch], None]
"""Takes a step: gets the cell, what takes the step of inputs and batch, the inputs and the batch."""


def drawn_images(pairs: int, size: int) -> ScenesConfig:
    """Data of at least so many pairs of drawn images of this side."""
    image = ImageConfig(size=size, resize=size, augment="none")
    return ScenesConfig(num_train=-(-pairs // 5), num_val=4, num_test=4, image=image)


def train_steps(unit: UnitPlan, around: Around) -> None:
    """Train a unit of one cell, whose steps `around` takes."""
    original = CellTrainer.step

    def step(self: CellTrainer, inputs: Tensor, batch: Batch, **named: float) -> None:
        def take(inputs: Tensor, batch: Batch) -> None:
            original(self, inputs, batch, **named)

        position = self.next_step
        around(self, take, inputs, batch)
        self.next_step = position + 1  # however many steps it took

    CellTrainer.step = step  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            files = {one.key: ScratchFiles(Path(scratch) / one.key) for one in unit.trainings}
            outcomes = train_unit(unit, files, SilentListener(), open_dataset(unit.data))
    finally:
        CellTrainer.step = original  # type: ignore[method-assign]
    if any(hasattr(one, "trace") for one in outcomes):
        raise SystemExit(str(outcomes))


def first_rows(batch: Batch, count: int) -> Batch:
    """The first pairs of a batch."""
    cut = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return replace(batch, **{name: value[:count] for name, value in cut.items() if value is not None})
