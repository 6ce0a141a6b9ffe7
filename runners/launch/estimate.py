"""What a sweep will cost, before anything runs: cells, units, steps, disk, and time from measured speed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from goal_core.data import SplitCounts, num_batches, published_counts
from goal_core.training import measure_speed
from runners.launch.opened_sweep import OpenedSweep
from runners.store.training_folder import BEST
from sweeps import Cell, SweepConfig, Unit, expand, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One stage's share of a sweep."""

    name: str
    cells: int
    """Cells of the sweep."""
    done: int
    """Those whose result is in the store."""
    units: int
    """Units that the rest makes."""
    steps_per_epoch: int
    steps: int
    """Optimiser steps of the rest, all cells together."""
    disk_mb: float | None
    """Best weights of the rest, megabytes; None before one of them has been written."""
    hours: float | None
    """Device hours of the rest at the speed of the finished cells, or at the measured one; None when neither is
    known."""
    published: bool
    """Whether the data was not there, so that its published size stands for it and nothing can count as done."""


def plan_stages(study: OpenedSweep, *, measure: bool = False) -> list[StagePlan]:
    """Plan each stage from the data's size and from what the store's finished cells took.

    Args:
        study: the sweep.
        measure: train the first units of a stage of which no cell has finished for a few steps, to know its speed.

    Raises:
        GoalError: the speed was to be measured, and a unit does not train.
    """
    statuses = study.statuses()
    captions = study.dataset.splits["train"].num_captions
    plans = []
    for index, stage in enumerate(study.config.stages):
        refs = {cell.id: study.ref(cell, index) for cell in study.cells}
        done = [cell for cell in study.cells if statuses[refs[cell.id]].state == "done"]
        seconds = [float(statuses[refs[cell.id]].result["seconds"]) for cell in done]
        sizes = [
            path.stat().st_size for cell in done if (path := study.store.folder(refs[cell.id]).path(BEST)).exists()
        ]
        left = [cell for cell in study.cells if cell not in done]
        hours = len(left) * statistics.fmean(seconds) / 3600 if seconds else None
        if hours is None and measure:
            hours = _measured_hours(study, pack(left, index, study.config.execution), captions)
        plans.append(
            StagePlan(
                name=stage.name,
                cells=len(study.cells),
                done=len(done),
                **_rest(study.config, left, index, captions),
                disk_mb=len(left) * statistics.fmean(sizes) / 1e6 if sizes else None,
                hours=hours,
                published=False,
            )
        )
    return plans


def _measured_hours(study: OpenedSweep, units: Sequence[Unit], captions: int) -> float:
    """Hours of some units of one stage, each at the measured speed of the first of its backbone and number of cells."""
    splits = study.dataset.splits
    images = sum(split.num_images for split in splits.values())
    seconds = 0.0
    speeds = {}
    for unit in units:
        kind = (unit.cells[0].model, len(unit.cells))
        if kind not in speeds:
            speeds[kind] = measure_speed(study.job(unit, "", {}).plan, study.dataset)
            # Features are kept in the store for all units of a backbone that is the same in each of them.
            seconds += speeds[kind].feature_image_s * images
        speed = speeds[kind]
        steps = unit.stage.epochs * num_batches(captions, unit.stage.batch_size, unit.stage.drop_last)
        evaluated = unit.stage.epochs * splits["val"].num_images + splits["test"].num_images
        seconds += steps * speed.step_s + evaluated * speed.eval_image_s
    return seconds / 3600


def absent_but_published(config: SweepConfig) -> SplitCounts | None:
    """The published size of the training split, where the sweep's data is not here at all; else None."""
    if config.data.root is None or Path(config.data.root).exists():
        return None
    return published_counts(config.data).get("train")


def plan_published(config: SweepConfig, train: SplitCounts) -> list[StagePlan]:
    """Plan each stage of a sweep whose data is not here.

    Args:
        config: the sweep.
        train: size of its training split.
    """
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    cells = expand(config, "unknown", unknown)
    return [
        StagePlan(
            name=stage.name,
            cells=len(cells),
            done=0,
            **_rest(config, cells, index, train.captions),
            disk_mb=None,
            hours=None,
            published=True,
        )
        for index, stage in enumerate(config.stages)
    ]


class _Rest(TypedDict):
    units: int
    steps_per_epoch: int
    steps: int


def _rest(config: SweepConfig, left: Sequence[Cell], index: int, captions: int) -> _Rest:
    """What training one stage of some cells takes."""
    stage = config.stages[index]
    steps = num_batches(captions, stage.batch_size, stage.drop_last)
    return _Rest(
        units=len(pack(left, index, config.execution)),
        steps_per_epoch=steps,
        steps=len(left) * stage.epochs * steps,
    )
