"""What follows when units that share a GPU fill its memory: fewer of them share it, before anything else changes.

Whichever unit asks for memory last is refused, so the refusal says nothing of its cells, and no attempt is charged. The
unit starts again with half as many on its GPU, and so do those of its stage that have not started yet. A unit with one
for itself goes on in smaller chunks (`runners.execution.memory`). Each launch begins with what it chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from goal_core.training import TrainingEvent
from runners.execution.memory import fewer_units, is_full
from runners.execution.worker import UnitJob


def with_units(job: UnitJob, units: int) -> UnitJob:
    """The job as one of so many that share a GPU."""
    if units == job.units_per_gpu:
        return job
    return replace(job, plan=replace(job.plan, units_per_gpu=units))


class Crowding:
    """How many units may share a GPU, after what a launch has seen of each stage."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def look(self, job: UnitJob, events: Sequence[TrainingEvent]) -> None:
        """Note what happened to a unit."""
        if job.units_per_gpu > 1 and any(is_full(event) for event in events):
            stage = job.unit.stage.name
            self._most[stage] = min(fewer_units(job.units_per_gpu), self._most.get(stage, job.units_per_gpu))

    def fit(self, job: UnitJob) -> UnitJob:
        """The job with as many units on its GPU as have room."""
        return with_units(job, min(job.units_per_gpu, self._most.get(job.unit.stage.name, job.units_per_gpu)))
