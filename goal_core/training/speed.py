"""How fast a unit trains on this machine: a few real steps on the first images of its data, in a scratch folder."""

import time
from collections.abc import Sequence
from dataclasses import replace

from goal_sweep.goal_core.basics.atomic import scratch_folder
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.data import SPLIT_NAMES, Dataset, num_batches
from goal_sweep.goal_core.training.plan import Callback, EpochDone, FolderFiles, TrainingEvent, TrainingFailed, UnitPlan
from goal_sweep.goal_core.training.train import train_unit

EVAL_IMAGES = 128
"""Images of each of the small val and test splits: two chunks."""


def measure_speed(unit: UnitPlan, dataset: Dataset, *, steps: int = 8) -> float:
    """Seconds of wall clock of a whole unit, from a few steps and one evaluation, of which nothing is kept.

    Its cells start from the initial weights, also where the stage would start from others: the cost is the same. That
    of a warm-up epoch is taken to be, too.

    Args:
        steps: optimiser steps, at least 3. The first is not counted, because it includes what happens once; on a GPU
            it has run when the second has been queued.
    """
    stage = replace(unit.stage, epochs=1, warmup_epochs=0, frozen_epochs=0, ramp_epochs=0, lr_drops=(), select_on="val")
    # Their own settings may not fit the short stage, and cost nothing.
    trainings = tuple(replace(training, init=None, own={}) for training in unit.trainings)
    unit = replace(unit, trainings=trainings, stage=stage, cache=None)
    small = _beginning(dataset, steps * stage.batch_size)
    clock = _Clock()
    with scratch_folder() as scratch:
        train_unit(unit, {plan.key: FolderFiles(scratch / plan.key) for plan in trainings}, clock, small)
    if len(clock.steps) < 3 or not clock.eval_s:
        raise GoalError(f"the speed of {stage.name!r} cannot be measured: {clock.reason or 'the data are too small'}")
    splits, epochs = dataset.splits, unit.stage.epochs
    step_s = (clock.steps[-1] - clock.steps[1]) / (len(clock.steps) - 2)
    steps = num_batches(splits["train"].num_captions, stage.batch_size, stage.drop_last)
    closing_s = max(0.0, clock.closed - clock.steps[-1] - clock.eval_s)  # above all saving state and best weights
    images = epochs * splits["val"].num_images + splits["test"].num_images
    return epochs * (steps * step_s + closing_s) + images * clock.eval_s / small.splits["val"].num_images


def _beginning(dataset: Dataset, num_captions: int) -> Dataset:
    """The first images of each split, with the vocabulary of all: an embedding's cost depends on its length."""
    train = dataset.splits["train"]
    last = train.caption_image[min(num_captions, train.num_captions) - 1]
    sizes = {"train": int(last) + 1, "val": EVAL_IMAGES, "test": EVAL_IMAGES}
    return replace(dataset, splits={name: dataset.splits[name].first(sizes[name]) for name in SPLIT_NAMES})


class _Clock(Callback):
    """Notes when steps end, how long evaluating every cell took, and when all were evaluated and saved, in seconds."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.eval_s = self.closed = 0.0
        self.reason = ""

    def step(self) -> None:
        self.steps.append(time.perf_counter())

    def events(self, events: Sequence[TrainingEvent]) -> None:
        for event in events:
            if isinstance(event, EpochDone):
                self.eval_s += event.record["metrics"]["time/val_s"]
                self.closed = time.perf_counter()
            if isinstance(event, TrainingFailed):
                self.reason = event.reason
