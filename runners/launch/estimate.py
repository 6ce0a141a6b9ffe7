"""Estimate what a sweep will cost before anything runs: cells, units, steps, disk, and time from measured speed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import goal_core.training
from goal_core.data import SplitCounts, num_batches, published_counts
from runners.launch.opened_sweep import OpenedSweep
from runners.store import BEST
from sweeps import ResolvedSweep, SweepConfig, Training, Unit, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One stage's share of a sweep."""

    name: str
    cells: int
    """Cells of the sweep."""
    done: int
    """Cells whose result is in the store."""
    units: int
    """Units into which the remaining cells are packed."""
    steps_per_epoch: int
    steps: int
    """Optimiser steps of the remaining cells, summed."""
    disk_mb: float | None
    """Size of the remaining cells' best weights in megabytes; None before any has been written."""
    hours: float | None
    """Device hours of the remaining cells at the speed of the finished ones or at the measured speed; None if neither
    is known."""
    published: bool
    """Whether the plan rests on the published size of data that is not on this machine. Then nothing counts as done."""


def plan_stages(sweep: OpenedSweep, *, measure: bool = False) -> list[StagePlan]:
    """Plan each stage from the size of the data and the time that finished trainings took.

    Args:
        sweep: the sweep.
        measure: for stages without a finished training, measure the speed by training units for a few steps.

    Raises:
        GoalError: a unit fails while its speed is measured.
    """
    statuses = sweep.statuses()
    captions = sweep.dataset.splits["train"].num_captions
    plans = []
    for trainings in sweep.by_stage:
        done = [training for training in trainings if statuses[training].state == "done"]
        left = [training for training in trainings if statuses[training].state != "done"]
        seconds = [float(statuses[training].result["seconds"]) for training in done]
        sizes = list(_sizes(sweep, done))
        hours = len(left) * statistics.fmean(seconds) / 3600 if seconds else None
        if hours is None and measure:
            hours = _measured_hours(sweep, pack(left, sweep.config.execution), captions)
        disk_mb = len(left) * statistics.fmean(sizes) / 1e6 if sizes else None
        plans.append(_plan(sweep.config, trainings, left, captions, disk_mb=disk_mb, hours=hours, published=False))
    return plans


def plan_published(config: SweepConfig, train: SplitCounts) -> list[StagePlan]:
    """Plan each stage of a sweep whose data is not on this machine.

    Args:
        config: the sweep.
        train: size of its training split.
    """
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    stages = ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown).by_stage
    return [
        _plan(config, trainings, trainings, train.captions, disk_mb=None, hours=None, published=True)
        for trainings in stages
    ]


def absent_but_published(config: SweepConfig) -> SplitCounts | None:
    """The published size of the training split if the sweep's data folder does not exist, else None."""
    if config.data.root is None or Path(config.data.root).exists():
        return None
    return published_counts(config.data).get("train")


def _plan(
    config: SweepConfig,
    trainings: Sequence[Training],
    left: Sequence[Training],
    captions: int,
    *,
    disk_mb: float | None,
    hours: float | None,
    published: bool,
) -> StagePlan:
    """Plan one stage. ``left`` are the trainings still to do; ``captions`` is the size of the training split."""
    stage = trainings[0].stage
    steps = num_batches(captions, stage.batch_size, stage.drop_last)
    return StagePlan(
        name=stage.name,
        cells=len(trainings),
        done=len(trainings) - len(left),
        units=len(pack(left, config.execution)),
        steps_per_epoch=steps,
        steps=len(left) * stage.epochs * steps,
        disk_mb=disk_mb,
        hours=hours,
        published=published,
    )


def _sizes(sweep: OpenedSweep, trainings: Sequence[Training]) -> Iterator[int]:
    """Bytes of each training's best weights; imported results have none and are left out."""
    for training in trainings:
        path = sweep.store.folder(training).path(BEST)
        if path.exists():
            yield path.stat().st_size


def _measured_hours(sweep: OpenedSweep, units: Sequence[Unit], captions: int) -> float:
    """Hours that units of one stage need. Units with the same model and number of cells share one measurement."""
    splits = sweep.dataset.splits
    images = sum(split.num_images for split in splits.values())
    seconds = 0.0
    speeds = {}
    for unit in units:
        kind = (unit.trainings[0].cell.model, len(unit.trainings))
        if kind not in speeds:
            speeds[kind] = goal_core.training.measure_speed(sweep.plan_unit(unit), sweep.dataset)
            # The units of one backbone compute its features once; the store keeps them.
            seconds += speeds[kind].feature_image_s * images
        speed = speeds[kind]
        steps = unit.stage.epochs * num_batches(captions, unit.stage.batch_size, unit.stage.drop_last)
        evaluated = unit.stage.epochs * splits["val"].num_images + splits["test"].num_images
        seconds += steps * speed.step_s + evaluated * speed.eval_image_s
    return seconds / 3600
