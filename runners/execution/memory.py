"""What follows when a batch does not fit into memory: its trainings go on with half as many pairs encoded at a time.

The gradient stays that of the whole batch (`goal_core.models.batch_rows`), so nothing but time is lost. An attempt that
ends so is not charged, for the next one differs from it. Each launch begins with what the sweep asks for, because it
may run on other machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.store import Attempt

if TYPE_CHECKING:
    from goal_sweep.goal_core.training import UnitPlan

SMALLEST = 4
"""Fewest pairs to encode at a time. What does not fit then is not the batch."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """How many pairs of a batch are encoded at a time."""

    batch: int
    """Pairs of a batch that one process encodes."""
    size: int
    """Pairs at a time; 0: all."""
    can_split: bool
    """Whether the model allows fewer."""
    processes: int = 1
    """How many processes share a batch."""

    @classmethod
    def of(cls, stage: StageConfig, data_format: str, processes: int = 1) -> Chunks:
        """As a stage asks for. Models that normalise by the statistics of the whole batch must have it whole."""
        rows, can_split = -(-stage.batch_size // processes), not stage.needs_whole_batches(data_format)
        return cls(rows, stage.micro_batch if stage.micro_batch < rows else 0, can_split, processes)

    @property
    def smaller(self) -> Chunks | None:
        """The next to try after these ran out of memory; None if there is none."""
        half = -(-(self.size or self.batch) // 2)
        return replace(self, size=half) if self.can_split and half >= SMALLEST else None

    def after(self, attempts: Iterable[Attempt], launch_id: str) -> Chunks:
        """The chunks for the next attempt at a training, half of the smallest with which this launch ran out of memory.

        Args:
            attempts: those made so far.
            launch_id: of this launch.
        """
        chunks = self
        for attempt in attempts:
            if attempt.launch_id == launch_id and attempt.out_of_memory:
                tried = replace(self, size=attempt.micro_batch)
                chunks = min(chunks, tried.smaller or tried, key=lambda one: one.size or one.batch)
        return chunks

    def of_plan(self, plan: UnitPlan) -> UnitPlan:
        """The plan with these chunks."""
        return replace(plan, stage=replace(plan.stage, micro_batch=self.size))

    def __str__(self) -> str:
        several = f"{self.batch} pairs on each of {self.processes} devices"
        if not self.size:
            return f"{several} at once" if self.processes > 1 else f"batches of {self.batch} pairs at once"
        what = several if self.processes > 1 else f"batches of {self.batch}"
        return f"micro_batch {self.size} ({what} in {-(-self.batch // self.size)} chunks, same gradient)"
