"""Estimate what a sweep will cost before anything runs: cells, units, steps, disk and time.

Disk and time come from the finished trainings of a stage, or else from a calibration (`price`), or, on demand, from a
few measured steps.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import goal_core.training
from goal_core.data import Dataset, SplitCounts, Vocabulary, num_batches, published_counts
from runners.launch.calibration import NUM_WORDS
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.price import DataSize, device_hours, disk_mb
from runners.store import BEST
from sweeps import ResolvedSweep, SweepConfig, Training, Unit, pack

Basis = Literal["finished", "measured", "calibration"]
"""What a number rests on: the stage's finished trainings, a few steps trained here, or `calibration`."""
_COUNTED = 50_000
"""Captions of which the words are counted; of more, a published vocabulary is assumed."""


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
    """Size of the remaining cells' best weights in megabytes; None if it is not known."""
    disk_from: Basis | None
    """Where that is known from."""
    hours: float | None
    """Device hours of the remaining cells; None if they are not known."""
    hours_from: Basis | None
    """Where they are known from."""
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
    statuses, size = sweep.statuses(), _data_size(sweep.dataset)
    plans = []
    for trainings in sweep.by_stage:
        done = [training for training in trainings if statuses[training].state == "done"]
        left = [training for training in trainings if statuses[training].state != "done"]
        seconds = [float(statuses[training].result["seconds"]) for training in done]
        sizes = list(_sizes(sweep, done))
        known = _Known(
            disk_mb=len(left) * statistics.fmean(sizes) / 1e6 if sizes else None,
            hours=len(left) * statistics.fmean(seconds) / 3600 if seconds else None,
        )
        if known.hours is None and measure:
            hours = _measured_hours(sweep, pack(left, sweep.config.execution), size.captions)
            known = replace(known, hours=hours, hours_from="measured")
        plans.append(_plan(sweep.config, trainings, left, size, known))
    return plans


def epoch_prices(sweep: OpenedSweep) -> dict[str, float]:
    """Device seconds of an epoch of one cell, by stage: of its finished trainings, or else from the calibration.

    Stages with a backbone that the calibration lacks are left out.
    """
    statuses, size = sweep.statuses(), _data_size(sweep.dataset)
    prices: dict[str, float] = {}
    for trainings in sweep.by_stage:
        stage, done = trainings[0].stage, [one for one in trainings if statuses[one].state == "done"]
        seconds = [float(statuses[one].result["seconds"]) for one in done]
        hours = device_hours(pack(trainings, sweep.config.execution), sweep.config, size)
        if seconds:
            prices[stage.name] = statistics.fmean(seconds) / stage.epochs
        elif hours is not None:
            prices[stage.name] = 3600 * hours / len(trainings) / stage.epochs
    return prices


def lanes(sweep: OpenedSweep, todo: Sequence[Training]) -> int:
    """How many units of some trainings this machine can train at the same time."""
    if sweep.config.resources.gpus:
        return 1  # or more, which shows when they start
    left = [[one for one in trainings if one in todo] for trainings in sweep.by_stage]
    units = max(len(pack(trainings, sweep.config.execution)) for trainings in left)
    return max(1, min(units, (os.cpu_count() or 1) // sweep.config.resources.cpus))


def plan_published(config: SweepConfig, splits: Mapping[str, SplitCounts]) -> list[StagePlan]:
    """Plan each stage of a sweep whose data is not on this machine.

    Args:
        config: the sweep.
        splits: size of its splits; at least that of ``train``.
    """
    none = SplitCounts(images=0, captions=0)
    val = splits.get("val", none)
    size = DataSize(
        captions=splits["train"].captions,
        images=sum(split.images for split in splits.values()),
        val=(val.images, val.captions),
        words=NUM_WORDS,
    )
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    stages = ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown).by_stage
    return [
        _plan(config, trainings, trainings, size, _Known(disk_mb=None, hours=None), published=True)
        for trainings in stages
    ]


def absent_but_published(config: SweepConfig) -> Mapping[str, SplitCounts] | None:
    """The published size of the splits if the sweep's data folder does not exist, else None."""
    if config.data.root is None or Path(config.data.root).exists():
        return None
    splits = published_counts(config.data)
    return splits if "train" in splits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a stage's cost without the calibration."""

    disk_mb: float | None
    hours: float | None
    hours_from: Basis = "finished"


def _data_size(dataset: Dataset) -> DataSize:
    splits, captions = dataset.splits, dataset.vocabulary_captions
    words = len(Vocabulary.build(captions, 1)) if len(captions) <= _COUNTED else NUM_WORDS
    return DataSize(
        captions=splits["train"].num_captions,
        images=sum(split.num_images for split in splits.values()),
        val=(splits["val"].num_images, splits["val"].num_captions),
        words=words,
    )


def _plan(
    config: SweepConfig,
    trainings: Sequence[Training],
    left: Sequence[Training],
    size: DataSize,
    known: _Known,
    *,
    published: bool = False,
) -> StagePlan:
    """Plan one stage. ``left`` are the trainings still to do."""
    stage, units = trainings[0].stage, pack(left, config.execution)
    steps = num_batches(size.captions, stage.batch_size, stage.drop_last)
    disk = disk_mb(units, size) if known.disk_mb is None else known.disk_mb
    hours = device_hours(units, config, size) if known.hours is None else known.hours
    return StagePlan(
        name=stage.name,
        cells=len(trainings),
        done=len(trainings) - len(left),
        units=len(units),
        steps_per_epoch=steps,
        steps=len(left) * stage.epochs * steps,
        disk_mb=disk,
        disk_from=None if disk is None else "calibration" if known.disk_mb is None else "finished",
        hours=hours,
        hours_from=None if hours is None else "calibration" if known.hours is None else known.hours_from,
        published=published,
    )


def _sizes(sweep: OpenedSweep, trainings: Sequence[Training]) -> Iterator[int]:
    """Bytes of each training's best weights; imported results have none and are left out."""
    for training in trainings:
        folder = sweep.store.folder(training)
        written = folder.storage.written(folder.place(BEST))
        if written is not None:
            yield written.bytes


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
