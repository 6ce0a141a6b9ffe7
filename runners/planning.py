"""What a sweep will cost, before anything runs: cells, units, steps, disk, and time from measured speed."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from runners.stage_folder import BEST
from runners.study import Study
from sweeps import pack


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
    """Device hours of the rest at the speed of the finished cells; None before one has finished."""


def plan_stages(study: Study) -> list[StagePlan]:
    """Plan each stage from the data's size and from what the store's finished cells took."""
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
        plans.append(
            StagePlan(
                name=stage.name,
                cells=len(study.cells),
                done=len(done),
                units=len(pack(left, index, study.config.execution)),
                steps=len(left) * stage.epochs * batches,
                disk_mb=len(left) * statistics.fmean(sizes) / 1e6 if sizes else None,
                hours=len(left) * statistics.fmean(seconds) / 3600 if seconds else None,
            )
        )
    return plans
