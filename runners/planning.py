"""What a sweep will cost, before anything runs: cells, units, steps, disk, and time from measured speed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from goal_core.training import measure_speed
from runners.stage_folder import BEST
from runners.study import Study
from sweeps import Unit, pack


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
    steps: int
    """Optimiser steps of the rest, all cells together."""
    disk_mb: float | None
    """Best weights of the rest, megabytes; None before one of them has been written."""
    hours: float | None
    """Device hours of the rest at the speed of the finished cells, or at the measured one; None when neither is
    known."""


def plan_stages(study: Study, *, measure: bool = False) -> list[StagePlan]:
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
        left = [cell for cell in study.cells if cell not in done]
        batches = captions // stage.batch_size if stage.drop_last else math.ceil(captions / stage.batch_size)
        seconds = [float(statuses[refs[cell.id]].result["seconds"]) for cell in done]
        sizes = [
            path.stat().st_size for cell in done if (path := study.store.folder(refs[cell.id]).path(BEST)).exists()
        ]
        units = pack(left, index, study.config.execution)
        hours = len(left) * statistics.fmean(seconds) / 3600 if seconds else None
        if hours is None and measure:
            hours = _measured_hours(study, units, batches)
        plans.append(
            StagePlan(
                name=stage.name,
                cells=len(study.cells),
                done=len(done),
                units=len(units),
                steps=len(left) * stage.epochs * batches,
                disk_mb=len(left) * statistics.fmean(sizes) / 1e6 if sizes else None,
                hours=hours,
            )
        )
    return plans


def _measured_hours(study: Study, units: Sequence[Unit], batches: int) -> float:
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
        evaluated = unit.stage.epochs * splits["val"].num_images + splits["test"].num_images
        seconds += unit.stage.epochs * batches * speed.step_s + evaluated * speed.eval_image_s
    return seconds / 3600
