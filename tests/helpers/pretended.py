"""Launches in this process in which a stand-in trains in no time, and fails or dies when told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from goal_sweep.goal_core.checkpoints.names import LAST, best_name
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingFailed
from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.launch import LaunchOutcome
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.remaining import LaunchOptions
from goal_sweep.runners.store import TrainingFolder, counted_failures
from tests.helpers.in_process import launch, sweep_in
from tests.helpers.store_cases import record, result, write_weights

EPOCHS = 4
ONE_STAGE = f"stages=[{{name: frozen, epochs: {EPOCHS}, lr: 1e-3, batch_size: 16}}]"
ALL_15 = "objectives={pair: [con, lin, sig, lin-ms, sig-ms], triplet: [con, nca, cir]}"
ALONE = "objectives={only: [con/con]}"
Act = Callable[[str, int], None]
"""Called with a training's key and its epoch, from 1, before that epoch is saved; and with the epoch after the last one
before the training is finished. An exception that it raises is the training's failure; `Dies` is the worker's end."""


class Trains:
    """Launches in which a stand-in for the trainer saves states and finishes, and dies when told to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *settings: str) -> None:
        self.sweep: OpenedSweep = sweep_in(folder, *settings)
        self._patch = patch
        self.groups: list[list[str]] = []
        """The keys of each unit that began to train."""

    def launch(
        self,
        act: Act = lambda key, epoch: None,
        train: Callable[[UnitJob, Send], None] = run_unit,
        options: LaunchOptions | None = None,
        console: Console | None = None,
    ) -> LaunchOutcome:
        with self._patch.context() as patch:
            patch.setattr(worker, "train_unit", partial(self._train, act))
            return launch(self.sweep, patch, options, train=train, console=console)

    def _train(self, act: Act, plan: Any, files: Mapping[str, TrainingFolder], callback: Any, dataset: Any) -> None:
        self.groups.append(list(files))
        left, epochs = dict(files), plan.stage.epochs
        done = {key: len(folder.records()) for key, folder in files.items()}
        time.sleep(0.01)  # a state is later than its claim, also where the times of files are coarse
        for epoch in range(1, epochs + 1):
            here = [key for key in [*left] if done[key] < epoch and self._goes_on(act, key, epoch, left, callback)]
            for key in here:
                for name in (best_name(epoch), LAST):
                    files[key].save_with(name, partial(write_weights, value=epoch))
                files[key].write_metrics([record(number) for number in range(1, epoch + 1)])
            if here:
                callback.events([EpochDone(key=key, record=record(epoch)) for key in here])
        for key in [*left]:
            if self._goes_on(act, key, epochs + 1, left, callback):
                files[key].finish(result(epochs))
                callback.events([TrainingDone(key=key, result={})])

    @staticmethod
    def _goes_on(act: Act, key: str, epoch: int, left: dict[str, TrainingFolder], callback: Any) -> bool:
        try:
            act(key, epoch)
        except Exception as error:
            del left[key]
            callback.events([TrainingFailed.because_of(key, error)])
        return key in left

    @property
    def keys(self) -> list[str]:
        return [training.key for training in self.sweep.trainings]

    @property
    def counts(self) -> list[int]:
        folders = (self.sweep.store.folder(training) for training in self.sweep.trainings)
        return [counted_failures(folder.attempts.all()) for folder in folders]

    @property
    def states(self) -> list[str]:
        return [status.state for status in self.sweep.statuses().values()]
