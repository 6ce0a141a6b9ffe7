"""The differences of objectives from con/con, as the page draws them: a row each, on an axis that fits most of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np

from goal_sweep.analysis.blocks import BlockResults, Difference, Grid, Objective

_OUTLIER = 3.0
"""A row that lies this many times farther out than three quarters of the rows is cut off at the axis's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """One metric of one block."""

    grid: Grid
    differences: Mapping[Objective, Difference | None]
    """In the order of the rows; None without a value, and for con/con itself."""
    limits: tuple[float, float]
    """The ends of the axis, which includes 0; both directions of a block share it."""

    @classmethod
    def of(cls, block: BlockResults, grid: Grid) -> Forest | None:
        """None where there is nothing to compare with con/con."""
        changes = grid.comparison.from_baseline
        if not changes:
            return None
        grids = block.grids_of(grid.metric.name)
        ends = [cls.ends(change) for own in grids for change in own.comparison.from_baseline.values()]
        far = max(_OUTLIER * float(np.quantile([max(map(abs, own)) for own in ends], 0.75)), 0.1)
        low, high = max(-far, min(0.0, *(own[0] for own in ends))), min(far, max(0.0, *(own[1] for own in ends)))
        margin = 0.06 * max(high - low, 0.1)
        rows = {key: changes.get(key) for key, cell in grid.cells.items() if cell.requested}
        return cls(grid=grid, differences=rows, limits=(low - margin, high + margin))

    @property
    def is_cut(self) -> bool:
        """Whether any row lies beyond the axis."""
        low, high = self.limits
        return any(change is not None and not low <= change.estimate <= high for change in self.differences.values())

    @property
    def ticks(self) -> list[float]:
        """Round values within the limits: multiples of 1, 2 or 5 times a power of ten."""
        low, high = self.limits
        size = 10.0 ** np.floor(np.log10((high - low) / 3))
        step = size * max(factor for factor in (1, 2, 5) if factor * size <= (high - low) / 3 or factor == 1)
        return [float(step * place) for place in range(int(np.ceil(low / step)), int(high / step) + 1)]

    @staticmethod
    def ends(difference: Difference) -> tuple[float, float]:
        """The ends of an interval; the estimate twice without one."""
        reach = 0.0 if isnan(difference.reach) else difference.reach
        return difference.estimate - reach, difference.estimate + reach


def interval_note(forests: Iterable[Forest]) -> str:
    """What the lines are."""
    judged = [own.grid.comparison for own in forests if own.grid.comparison.is_judged]
    if not judged:
        return "Nothing is tested, so there are no intervals."
    images = " and test images" if all(own.with_images for own in judged) else ""
    return f"Line: simultaneous 95 % interval for new seeds{images}."
