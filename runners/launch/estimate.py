"""Estimate what a sweep will cost before anything runs: cells, units, steps, disk, memory and time.

The numbers come from the finished trainings of a backbone in a stage, or else from a calibration (`price`), or, on
demand, from a few measured steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from goal_core.basics.atomic import DamagedError
from goal_core.data import Dataset, SplitCounts, Vocabulary, num_batches, published_counts
from goal_core.models.config import ModelConfig
from runners.launch.calibration import NUM_WORDS
from runners.launch.kept_memory import kept_memory
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.price import DataSize, disk_mb
from runners.launch.prices import Basis, Kind, Measured, Prices
from runners.store import BEST, Attempt, TrainingStatus
from sweeps import ResolvedSweep, SweepConfig, Training, Unit, pack

_COUNTED = 50_000
"""Captions of which the words are counted; of more, a published vocabulary is assumed."""
_LOOKED_AT = 64
"""Finished trainings of a stage whose attempts are read, because a store may hold thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackbonePlan:
    """What the remaining cells of one backbone cost in a stage. What is not known is None."""

    name: str
    disk_mb: float | None
    """Size of their best weights in megabytes."""
    disk_from: Basis | None
    """Where that is known from."""
    hours: float | None
    """Device hours."""
    hours_from: Basis | None
    """Where they are known from."""
    memory_mb: float | None
    """Peak memory of the largest unit on its device, of several GPUs on the first, in megabytes."""
    memory_from: Basis | None
    """Where that is known from."""


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
    """Size of the remaining cells' best weights in megabytes; None if it is not known of all backbones."""
    disk_from: Basis | None
    """Where that is known from; of several backbones, what is known worst."""
    hours: float | None
    """Device hours of the remaining cells; None if they are not known of all backbones."""
    hours_from: Basis | None
    """Where they are known from, likewise."""
    gpu_hours: float | None
    """The same in hours of whole GPUs; 0 for a stage on the CPU."""
    memory_mb: float | None
    """Peak memory of the largest unit on its device, of several GPUs on the first, in megabytes: of the backbones of
    which it is known; None if it is known of none."""
    memory_from: Basis | None
    """Where that is known from."""
    published: bool
    """Whether the plan rests on the published size of data that is not on this machine. Then nothing counts as done."""
    backbones: tuple[BackbonePlan, ...] = ()
    """The same for each backbone that has cells left."""


def sweep_prices(
    sweep: OpenedSweep,
    statuses: Mapping[Training, TrainingStatus] | None = None,
    measured: Mapping[Kind, Measured] | None = None,
) -> Prices:
    """The prices of a sweep's units, from its finished trainings where there are any.

    Args:
        sweep: the sweep.
        statuses: of its trainings, where they are known already.
        measured: prices that were measured.
    """
    statuses = sweep.statuses() if statuses is None else statuses
    prices = Prices(config=sweep.config, size=_data_size(sweep.dataset))
    scale: dict[Kind, float] = {}
    peaks: dict[Kind, list[tuple[float, int]]] = {}
    for trainings in sweep.by_stage:
        finished = _by_model(one for one in trainings if statuses[one].state == "done")
        for model, done in finished.items():
            taken, kind = [], (model, trainings[0].stage.name)
            for one in done[:: -(-len(done) * len(finished) // _LOOKED_AT)]:
                with suppress(OSError, DamagedError):  # a price is no reason to stop
                    attempts = [each for each in sweep.store.folder(one).attempts.all() if each.ended is not None]
                    taken.append(_taken(one, attempts, statuses[one]))
                    peaks.setdefault(kind, []).extend(_peaks(one, attempts))
            # A cell takes its part of a unit with as many cells as its own had.
            priced = [prices.shape(Unit(trainings=(one,) * side)) / side for _, side, one in taken]
            if sum(priced):
                scale[kind] = sum(seconds for seconds, _, _ in taken) / sum(priced)
    image = sweep.config.data.image
    decoded = image is not None and _has_entries(sweep.store.packs)
    prices = replace(prices, peaks=peaks, kept=kept_memory(sweep), decoded=decoded)
    return replace(prices, scale=scale, measured=measured or {})


def _has_entries(folder: Path) -> bool:
    """Whether a folder holds anything, here packs, whose images need no decoding."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _peaks(training: Training, attempts: Sequence[Attempt]) -> Iterator[tuple[float, int]]:
    """The memory of a GPU that attempts that trained as the sweep asks reserved, and their numbers of cells."""
    stage = training.stage
    asked = stage.micro_batch if stage.micro_batch < stage.batch_size else 0
    for one in attempts:
        if one.memory_mb and one.progressed and one.micro_batch == asked:
            yield one.memory_mb, one.shared_by


def _taken(training: Training, attempts: Sequence[Attempt], status: TrainingStatus) -> tuple[float, int, Training]:
    """The device seconds that a finished training took, and with how many cells it shared its unit.

    Its attempts say it; those of an imported result do not exist, and then its own steps count.
    """
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
        done = _by_model(training for training in trainings if statuses[training].state == "done")
        left = [training for training in trainings if statuses[training].state != "done"]
        sizes = {model: list(_sizes(sweep, done.get(model, ()))) for model in _by_model(left)}
        means = {model: statistics.fmean(found) / 1e6 for model, found in sizes.items() if found}
        plans.append(_plan(trainings, left, prices, auto, means))
    return plans


def epoch_prices(sweep: ResolvedSweep, prices: Prices, auto: Mapping[str, int]) -> dict[str, float]:
    """Device seconds of an epoch of one cell, by stage. Stages whose price is only assumed are left out."""
    found: dict[str, float] = {}
    for trainings in sweep.by_stage:
        stage, units = trainings[0].stage, pack(trainings, sweep.config.execution, auto)
        if all(prices.basis(unit) != "assumed" for unit in units):
            found[stage.name] = prices.total_s(units) / sum(one.num_epochs for one in trainings)
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
        _plan(trainings, trainings, prices, auto or {}, {}, published=True) for trainings in unopened(config).by_stage
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
    weights: Mapping[ModelConfig, float],
    *,
    published: bool = False,
) -> StagePlan:
    """Plan one stage. ``left`` are the trainings still to do, ``weights`` the megabytes of a finished one's weights."""
    stage, size = trainings[0].stage, prices.size
    steps = num_batches(size.captions, stage.batch_size, stage.drop_last)
    packed = {model: pack(own, prices.config.execution, auto) for model, own in _by_model(left).items()}
    plans = [_of_backbone(units, prices, weights.get(model)) for model, units in packed.items()]
    hours = _sum([one.hours for one in plans])
    memory = [(one.memory_mb, one.memory_from) for one in plans if one.memory_mb is not None]
    most = max(memory, key=lambda one: one[0], default=(None, None))
    return StagePlan(
        name=stage.name,
        cells=len(trainings),
        done=len(trainings) - len(left),
        units=sum(len(units) for units in packed.values()),
        steps_per_epoch=steps,
        steps=sum(one.num_epochs for one in left) * steps,
        disk_mb=_sum([one.disk_mb for one in plans]),
        disk_from=_worst([one.disk_from for one in plans]),
        hours=hours,
        gpu_hours=None if hours is None else hours * prices.config.resources.gpus,
        hours_from=_worst([one.hours_from for one in plans]),
        memory_mb=most[0],
        memory_from=most[1],
        published=published,
        backbones=tuple(plans),
    )


def _of_backbone(units: Sequence[Unit], prices: Prices, weights_mb: float | None) -> BackbonePlan:
    """Plan the units of one backbone in a stage; ``weights_mb`` is the size of a finished training's weights."""
    counted = disk_mb(units, prices.size)
    bases = {prices.basis(unit) for unit in units}
    known = "assumed" not in bases
    memory = [found for unit in units if (found := prices.memory(unit)) is not None]
    most = max(memory, default=None)
    return BackbonePlan(
        name=units[0].trainings[0].cell.model.backbone.name,
        disk_mb=counted if weights_mb is None else weights_mb * sum(len(unit.trainings) for unit in units),
        disk_from="finished" if weights_mb is not None else None if counted is None else "calibration",
        hours=prices.total_s(units) / 3600 if known else None,
        hours_from=_worst(list(bases)) if known else None,
        memory_mb=None if most is None else most.mb,
        memory_from=None if most is None else most.basis,
    )


def _by_model(trainings: Iterable[Training]) -> dict[ModelConfig, list[Training]]:
    found: dict[ModelConfig, list[Training]] = {}
    for training in trainings:
        found.setdefault(training.cell.model, []).append(training)
    return found


def _sum(parts: Sequence[float | None]) -> float | None:
    """The sum, None where a part is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _worst(bases: Sequence[Basis | None]) -> Basis | None:
    """The basis that is worth least; "finished" of none at all, None where a number has none."""
    order: Sequence[Basis] = get_args(Basis)
    return None if None in bases else order[max((order.index(one) for one in bases if one), default=0)]


def _sizes(sweep: OpenedSweep, trainings: Sequence[Training]) -> Iterator[int]:
    """Bytes of each training's best weights; imported results have none and are left out."""
    for training in trainings:
        folder = sweep.store.folder(training)
        written = folder.storage.written(folder.place(BEST))
        if written is not None:
            yield written.bytes
