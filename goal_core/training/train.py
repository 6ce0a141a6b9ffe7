"""Train a unit: in one process, or in the first of several that train it together and in those that follow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import cast

import torch

from goal_sweep.goal_core.basics.devices import set_arithmetic
from goal_sweep.goal_core.basics.errors import DataError, DeviceError
from goal_sweep.goal_core.data import Batch, Dataset, open_dataset
from goal_sweep.goal_core.training.cells.roster import Roster
from goal_sweep.goal_core.training.files import TrainingFiles
from goal_sweep.goal_core.training.peer import FirstRank, NoFiles
from goal_sweep.goal_core.training.plan import Listener, TrainingDone, TrainingFailed, UnitPlan
from goal_sweep.goal_core.training.ranks import ALIKE, ALONE, BrokenError, Ranks, RanksLostError
from goal_sweep.goal_core.training.unit_trainer import UnitTrainer


def train_unit(
    unit: UnitPlan,
    files: Mapping[str, TrainingFiles],
    listener: Listener | None = None,
    dataset: Dataset | None = None,
    *,
    hand_over: bool = False,
) -> list[TrainingDone | TrainingFailed]:
    """Train a unit's cells to the end of their stage, continuing from what their files already contain.

    Args:
        unit: what to train.
        files: the files of each training, by key.
        listener: is notified of steps and events.
        dataset: the data, if it is open already.
        hand_over: give the unit's other processes this dataset, which must be small; otherwise they open the data.

    Returns:
        How each training ended, in the order in which they ended. Those that the listener stopped are left out; their
        files hold the exact state, from which the next call continues.

    Raises:
        GoalError: the data, the weights or the device are not what the unit needs; no cell can train.
        RanksLostError: another process of the unit is lost. What the files contain is what to continue from.
    """
    begin_process(unit)
    listener = listener or Listener()
    dataset = dataset or open_dataset(unit.data)
    ranks = ALONE
    try:
        if unit.processes > 1:
            ranks = FirstRank(unit, listener.lost, partial(_follow, dataset=dataset if hand_over else None))
        trainer = UnitTrainer(unit, files, listener, dataset, ranks)
        try:
            outcomes = trainer.train()
        finally:
            trainer.close()
        ranks.finish()
        return outcomes
    except BrokenError as broken:
        raise RanksLostError(str(broken), broken.kind) from broken
    finally:
        ranks.close()


def _follow(unit: UnitPlan, ranks: Ranks, dataset: Dataset | None) -> None:
    """What the processes beside the first do, with a dataset that is handed over to them, or else their own."""
    begin_process(unit)
    # They have no files: the first process sends them the state of each cell, and writes.
    plan = replace(unit, trainings=tuple(replace(training, init=None, state=None) for training in unit.trainings))
    files = {training.key: cast(TrainingFiles, NoFiles()) for training in unit.trainings}
    follower = Follower(plan, files, Listener(), dataset or open_dataset(unit.data), ranks)
    try:
        follower.follow()
    finally:
        follower.close()


def begin_process(unit: UnitPlan) -> None:
    """Run the unit's plugins, set torch's threads and arithmetic, and check that the device is there.

    Raises:
        PluginError: a plugin fails.
        DeviceError: CUDA was requested but is not available, or has fewer GPUs than processes.
    """
    for plugin in unit.plugins:
        plugin.run()
    torch.set_num_threads(max(1, unit.threads // unit.processes))
    set_arithmetic(unit.precision)
    if unit.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("a GPU was requested (resources.gpus), but torch finds no CUDA device")
    if unit.device == "cuda" and torch.cuda.device_count() < unit.processes:
        raise DeviceError(
            f"{unit.processes} GPUs were requested (resources.gpus), but torch finds {torch.cuda.device_count()}"
        )


class _FollowingRoster(Roster):
    """Drops a cell that meets what the first process meets, too, and records; any other error ends this process."""

    @contextmanager
    def failing_alone(self, key: str) -> Iterator[None]:
        try:
            yield
        except ALIKE:
            self.cells.pop(key, None)


class Follower(UnitTrainer):
    """One of the processes beside the first: it takes the steps that the first says, and has no files."""

    roster_class = _FollowingRoster

    def follow(self) -> None:
        """Take the steps that the first process says, until it says that there are no more."""
        plans = {plan.key: plan for plan in self._unit.trainings}
        batches: Iterator[Batch] = iter(())
        following = (-1, -1)
        while True:
            message, tensors = self._ranks.receive()
            match message:
                case ("start", fingerprint, key, state):
                    if fingerprint != self._dataset.fingerprint:
                        raise DataError("the data have changed while the processes of a unit started")
                    self._roster.cells[key] = self._build_cell(plans[key])
                    self._roster.cells[key].restore(tensors, state)
                case ("check", key):
                    self._ranks.check_same(self._roster.cells[key].parameters, tensors["weights"])
                case ("prepare",):
                    self._trunk.prepare(self._dataset.splits["train"])
                case ("scale", epoch, keys):
                    cells = [self._roster.cells[key] for key in keys]
                    for cell in cells:
                        cell.epoch, cell.next_step = epoch, 0
                    self._scale(cells, epoch)
                case ("step", epoch, step, keys):
                    if (epoch, step) != following:
                        batches = self._source.batches(epoch + 1, start_step=step)
                    following = (epoch, step + 1)
                    inputs, captions, _ = self._load(next(batches))
                    for cell in map(self._roster.cells.__getitem__, keys):
                        cell.epoch, cell.next_step = epoch, step
                        with suppress(*ALIKE):  # the first process meets it too, and records it
                            cell.step(inputs, captions)
                case _:
                    return
