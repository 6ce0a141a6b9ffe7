"""Estimate what a sweep will cost before anything runs: cells, units, steps, disk, memory and time.

The numbers come from the finished trainings of a stage, or else from a calibration (`price`), or, on demand, from a few
measured steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from goal_core.atomic import DamagedError
from goal_core.data import Dataset, SplitCounts, Vocabulary, num_batches, published_counts
from goal_core.models.config import ModelConfig
from runners.launch.calibration import NUM_WORDS
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.price import DataSize, disk_mb
from runners.launch.prices import Basis, Measured, Prices
from runners.store import BEST, TrainingStatus
from sweeps import ResolvedSweep, SweepConfig, Training, Unit, pack

_COUNTED = 50_000
"""Captions of which the words are counted; of more, a published vocabulary is assumed."""
_LOOKED_AT = 64
"""Finished trainings of a stage whose attempts are read, because a store may hold thousands."""


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
    gpu_hours: float | None
    """The same in hours of whole GPUs; 0 for a stage on the CPU."""
    memory_mb: float | None
    """Peak memory of the largest unit on its device, of several GPUs on the first, in megabytes; None if it is not
    known."""
    memory_from: Basis | None
    """Where that is known from."""
    published: bool
    """Whether the plan rests on the published size of data that is not on this machine. Then nothing counts as done."""


def sweep_prices(
    sweep: OpenedSweep,
    statuses: Mapping[Training, TrainingStatus] | None = None,
    measured: Mapping[tuple[ModelConfig, str], Measured] | None = None,
) -> Prices:
    """The prices of a sweep's units, from its finished trainings where there are any.

    Args:
        sweep: the sweep.
        statuses: of its trainings, where they are known already.
        measured: prices that were measured.
    """
    statuses = sweep.statuses() if statuses is None else statuses
    prices = Prices(config=sweep.config, size=_data_size(sweep.dataset))
    scale: dict[str, float] = {}
    for trainings in sweep.by_stage:
        done = [one for one in trainings if statuses[one].state == "done"]
        taken = []
        for one in done[:: -(-len(done) // _LOOKED_AT) or 1]:
            with suppress(OSError, DamagedError):  # a price is no reason to stop
                taken.append(_taken(sweep, one, statuses[one]))
        # A cell takes its part of a unit with as many cells as its own had.
        priced = [prices.shape(Unit(trainings=(one,) * side)) / side for _, side, one in taken]
        if sum(priced):
            scale[trainings[0].stage.name] = sum(seconds for seconds, _, _ in taken) / sum(priced)
    return Prices(config=sweep.config, size=prices.size, scale=scale, measured=measured or {})


def _taken(sweep: OpenedSweep, training: Training, status: TrainingStatus) -> tuple[float, int, Training]:
    """The device seconds that a finished training took, and with how many cells it shared its unit.

    Its attempts say it; those of an imported result do not exist, and then its own steps count.
    """
    attempts = [one for one in sweep.store.folder(training).attempts.all() if one.ended is not None]
    if not attempts:
        return float(status.result["seconds"]), 1, training
    seconds = sum(((one.ended or 0.0) - one.started) / one.shared_by for one in attempts)
    return seconds, attempts[-1].shared_by, training


def plan_stages(
    sweep: OpenedSweep, prices: Prices, auto: Mapping[str, int], statuses: Mapping[Training, TrainingStatus]
) -> list[StagePlan]:
    """Plan each stage.

    Args:
        sweep: the sweep.
        prices: what its units cost.
        auto: as of `pack`.
        statuses: of its trainings.
    """
    plans = []
    for trainings in sweep.by_stage:
        done = [training for training in trainings if statuses[training].state == "done"]
        left = [training for training in trainings if statuses[training].state != "done"]
        sizes = list(_sizes(sweep, done))
        disk = len(left) * statistics.fmean(sizes) / 1e6 if sizes else None
        plans.append(_plan(trainings, left, prices, auto, disk))
    return plans


def epoch_prices(sweep: ResolvedSweep, prices: Prices, auto: Mapping[str, int]) -> dict[str, float]:
    """Device seconds of an epoch of one cell, by stage. Stages whose price is only assumed are left out."""
    found: dict[str, float] = {}
    for trainings in sweep.by_stage:
        stage, units = trainings[0].stage, pack(trainings, sweep.config.execution, auto)
        if all(prices.basis(unit) != "assumed" for unit in units):
            found[stage.name] = prices.total_s(units) / len(trainings) / stage.epochs
    return found


def published_prices(config: SweepConfig, splits: Mapping[str, SplitCounts]) -> Prices:
    """The calibrated prices of a sweep whose data is not on this machine.

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
    return Prices(config=config, size=size)


def plan_published(
    config: SweepConfig, splits: Mapping[str, SplitCounts], auto: Mapping[str, int] | None = None
) -> list[StagePlan]:
    """Plan each stage of a sweep whose data is not on this machine.

    Args:
        config: the sweep.
        splits: size of its splits; at least that of ``train``.
        auto: as of `pack`.
    """
    prices = published_prices(config, splits)
    return [
        _plan(trainings, trainings, prices, auto or {}, None, published=True) for trainings in unopened(config).by_stage
    ]


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)


def absent_but_published(config: SweepConfig) -> Mapping[str, SplitCounts] | None:
    """The published size of the splits if the sweep's data folder does not exist, else None."""
    if config.data.root is None or Path(config.data.root).exists():
        return None
    splits = published_counts(config.data)
    return splits if "train" in splits else None


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
    trainings: Sequence[Training],
    left: Sequence[Training],
    prices: Prices,
    auto: Mapping[str, int],
    disk: float | None,
    *,
    published: bool = False,
) -> StagePlan:
    """Plan one stage. ``left`` are the trainings still to do, ``disk`` the known size of their weights."""
    stage, units, size = trainings[0].stage, pack(left, prices.config.execution, auto), prices.size
    steps = num_batches(size.captions, stage.batch_size, stage.drop_last)
    calibrated = disk_mb(units, size) if disk is None else disk
    bases = {prices.basis(unit) for unit in units}
    known = "assumed" not in bases
    hours = prices.total_s(units) / 3600 if known else None
    memory = [prices.memory(unit) for unit in units]
    most = max((one for one in memory if one is not None), default=None)
    return StagePlan(
        name=stage.name,
        cells=len(trainings),
        done=len(trainings) - len(left),
        units=len(units),
        steps_per_epoch=steps,
        steps=len(left) * stage.epochs * steps,
        disk_mb=calibrated,
        disk_from=None if calibrated is None else "calibration" if disk is None else "finished",
        hours=hours,
        gpu_hours=None if hours is None else hours * prices.config.resources.gpus,
        hours_from=next(iter(bases), "finished") if known else None,
        memory_mb=None if most is None else most.mb,
        memory_from=None if most is None else most.basis,
        published=published,
    )


def _sizes(sweep: OpenedSweep, trainings: Sequence[Training]) -> Iterator[int]:
    """Bytes of each training's best weights; imported results have none and are left out."""
    for training in trainings:
        folder = sweep.store.folder(training)
        written = folder.storage.written(folder.place(BEST))
        if written is not None:
            yield written.bytes
