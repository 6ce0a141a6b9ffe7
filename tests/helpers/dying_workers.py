"""Workers that die while they train, without a process for each: a death is an exception that nothing handles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from goal_sweep.runners.execution.unit_listener import UnitListener

from goal_sweep.goal_core.checkpoints import LAST, best_name
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed, UnitPlan
from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import TrainingFolder
from goal_sweep.sweeps import pack
from tests.helpers.store_cases import record, result, write_weights

EPOCHS = 4


class Died(BaseException):
    """The end of a worker process: nothing in it sees this coming."""


class PretendTrainer:
    """Takes the place of `train_unit`: saves states and finishes as a trainer does, and dies when told to.

    Args:
        dies: called with a training's key and its epoch, from 1, before that epoch is saved; and with the epoch after
            the last one before the training is finished. Raises what shall happen.
    """

    def __init__(self, dies: Callable[[str, int], None]) -> None:
        self._dies = dies
        self.groups: list[list[str]] = []
        """The keys of each group that began to train."""

    def __call__(
        self, plan: UnitPlan, files: Mapping[str, TrainingFolder], listener: UnitListener, *dataset: object
    ) -> None:
        self.groups.append(list(files))
        done = {key: len(folder.records()) for key, folder in files.items()}
        time.sleep(0.02)  # a state is later than its claim, also where the times of files are coarse
        for epoch in range(1, EPOCHS + 1):
            here = [key for key in files if done[key] < epoch]
            for key in here:
                self._dies(key, epoch)
            for key in here:
                for name in (best_name(epoch), LAST):
                    files[key].save_with(name, partial(write_weights, value=epoch))
                files[key].write_metrics([record(number) for number in range(1, epoch + 1)])
            listener.step()
            if here:
                listener.events([EpochDone(key=key, record=record(epoch)) for key in here])
        for key, folder in files.items():
            self._dies(key, EPOCHS + 1)
            folder.finish(result(EPOCHS))
            listener.events([TrainingDone(key=key, result={})])


def run_until_it_ends(
    sweep: OpenedSweep,
    monkeypatch: pytest.MonkeyPatch,
    dies: Callable[[str, int], None],
    *,
    node: str = "here",
    node_lost: Callable[[str], bool] = lambda node: False,
    most: int = 27,
) -> tuple[list[list[str]], list[TrainingFailed]]:
    """Run a sweep's first unit as a trial that is started again whenever its worker dies, at most ``most`` times.

    Returns:
        The groups that began to train, and the failures that the driver was told of.
    """
    trainer = PretendTrainer(dies)
    monkeypatch.setattr(worker, "train_unit", trainer)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    sent: list[TrainingEvent] = []
    with sweep.store.heartbeat("s") as launch:
        job = sweep.job(unit, launch.id, {})
        for _ in range(most):
            try:
                run_unit(job, sent.extend, node=node, node_lost=node_lost)
            except Died:
                continue
            break
    return trainer.groups, [event for event in sent if isinstance(event, TrainingFailed)]
