"""Train a unit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import torch

from goal_sweep.goal_core.basics.devices import set_arithmetic
from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.training.files import TrainingFiles
from goal_sweep.goal_core.training.plan import Callback, TrainingDone, TrainingFailed, UnitPlan
from goal_sweep.goal_core.training.unit_trainer import UnitTrainer


def train_unit(
    unit: UnitPlan,
    files: Mapping[str, TrainingFiles],
    callback: Callback | None = None,
    dataset: Dataset | None = None,
) -> list[TrainingDone | TrainingFailed]:
    """Train a unit's cells to the end of their stage, continuing from what their files already contain.

    Gives how each training ended, in the order in which they ended. Those that the callback stopped are left out; their
    files hold the exact state, from which the next call continues. A `GoalError` means that no cell can train.
    """
    begin_process(unit)
    with closing(UnitTrainer(unit, files, callback or Callback(), dataset or open_dataset(unit.data))) as trainer:
        return trainer.train()


def begin_process(unit: UnitPlan) -> None:
    """Run the unit's plugins, set torch's threads and arithmetic, and check that the device is there."""
    for plugin in unit.plugins:
        plugin.run()
    torch.set_num_threads(unit.threads)
    set_arithmetic(unit.precision)
    if unit.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("a GPU was requested (resources.gpus), but torch finds no CUDA device")
