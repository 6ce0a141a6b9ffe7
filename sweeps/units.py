"""Cells into units: what one trial trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from goal_core.training.config import StageConfig
from sweeps.cells import Cell
from sweeps.identity import canonical_json, content_id
from sweeps.mapping import to_mapping
from sweeps.schema import ExecutionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Cells of one stage that run together on one device. They differ only in their objective."""

    cells: tuple[Cell, ...]
    """At least one."""
    stage_index: int
    """Index of the stage in each cell's `stages`."""

    @property
    def id(self) -> str:
        """16 hex digits of the stage keys of its cells."""
        return content_id([cell.stages[self.stage_index].key for cell in self.cells])

    @property
    def stage(self) -> StageConfig:
        """How the stage trains; the same for all its cells."""
        return self.cells[0].stages[self.stage_index].config

    @property
    def label(self) -> str:
        """The cell's name, or for several `resnet152 seed 1 (frozen), 8 objectives`."""
        first = self.cells[0]
        if len(self.cells) == 1:
            return first.name(self.stage.name)
        return f"{first.model.backbone.name} seed {first.seed} ({self.stage.name}), {len(self.cells)} objectives"


def pack(cells: Iterable[Cell], stage_index: int, execution: ExecutionConfig) -> list[Unit]:
    """Units that train one stage of some cells.

    With `sharing: trunk` the cells that differ only in their objective come together, in as few units as
    `cells_per_unit` allows and of sizes that differ by one at most (15 cells at most 8 to a unit: 8 + 7). In a stage
    that trains the backbone they share the decoded batches, and each holds a backbone of its own in memory.

    Args:
        cells: those still to train, any subset of a sweep's.
        stage_index: which of their stages; cells without it are left out.
        execution: sharing and its limit.

    Returns:
        The units, in the order of their first cells. Every cell is in exactly one.
    """
    todo = [cell for cell in cells if stage_index < len(cell.stages)]
    groups: dict[str, list[Cell]] = {}
    for cell in todo:
        groups.setdefault(_trunk(cell) if execution.sharing == "trunk" else cell.id, []).append(cell)
    return [
        Unit(cells=tuple(part), stage_index=stage_index)
        for group in groups.values()
        for part in _balanced(group, execution.cells_per_unit)
    ]


def _trunk(cell: Cell) -> str:
    """All that two cells must have in common to share a trunk."""
    stages = [[stage.config, stage.precision] for stage in cell.stages]
    return canonical_json(to_mapping([cell.data, cell.model, cell.seed, stages]))


def _balanced(cells: Sequence[Cell], limit: int) -> list[Sequence[Cell]]:
    """Consecutive parts of at most `limit` (0: no limit), as few as can be, the larger ones first."""
    parts = -(-len(cells) // limit) if limit else 1
    size, larger = divmod(len(cells), parts)
    bounds = [index * size + min(index, larger) for index in range(parts + 1)]
    return [cells[start:end] for start, end in pairwise(bounds)]
