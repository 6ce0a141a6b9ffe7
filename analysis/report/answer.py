"""What the table of one metric says: the highest mean, its gain over con/con, and what is not significantly worse.

The page also draws the differences from con/con: a row for each objective, on an axis that fits most of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan

import numpy as np

from goal_sweep.analysis.blocks import BlockResults, Difference, Grid, Objective, Verdict
from goal_sweep.analysis.report.parts import TextTable
from goal_sweep.analysis.statistics.comparison import FACTORS
from goal_sweep.analysis.wording import count_text, objectives_text
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.sweeps.results import BASELINE

_OUTLIER = 3.0
"""A row that lies this many times farther out than three quarters of the rows is cut off at the axis's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The differences of one metric of one block."""

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
    tested = [own.grid.comparison for own in forests if own.grid.comparison.is_tested]
    if not tested:
        return "Nothing is tested, so there are no intervals."
    images = " and test images" if all(own.with_images for own in tested) else ""
    return f"Line: simultaneous 95 % interval for new seeds{images}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """One metric of one block."""

    block: BlockResults
    grid: Grid
    best: Objective
    """The objective with the highest mean."""

    @property
    def mean(self) -> str:
        """The highest mean as printed, with its number of runs if seeds are missing; where several share it, alone."""
        text = self.grid.cells[self.best].text()
        return text.replace(" ± --", "") if len(self.top) == 1 else text.partition(" ")[0]

    @property
    def top(self) -> tuple[Objective, ...]:
        """The objectives with the highest mean as printed, in table order."""
        highest = self.grid.best()
        return tuple(key for key in self.grid.means if key in highest)

    @property
    def others(self) -> tuple[Objective, ...]:
        """The objectives with a lower mean as printed, in table order."""
        return tuple(key for key in self.grid.means if key not in self.top)

    @property
    def at_chance(self) -> dict[Objective, float]:
        """The objectives not shown to be better than chance, and their limits of the mean rsum; none of other metrics.

        The limit is 2 standard errors above the mean by chance. Seeds are independent there, so n seeds divide the
        error by √n. A limit of 600 or more tells nothing.
        """
        (mean, error), means = self.block.chance, self.grid.means
        limits = {key: mean + 2 * error / self.grid.cells[key].n ** 0.5 for key in means}
        return {key: size for key, size in limits.items() if self.grid.metric == RSUM and means[key] <= size < 600}

    @property
    def best_text(self) -> str:
        """The best objective, or those that share the highest mean as printed."""
        if len(self.top) > 1 and not self.others:
            return "all equal"
        return objectives_text(self.top) if len(self.top) <= 2 else f"{len(self.top)} equal"

    @property
    def gain_text(self) -> str:
        """The gain over con/con with its interval, in points."""
        gain = self.grid.gain
        if BASELINE in self.top:
            return "con/con itself" if len(self.top) == 1 else "none: con/con is as high"
        if gain is None:
            return "no con/con to compare with"
        return f"{gain.text}, {gain.verdict}" if gain.verdict == "not significant" else gain.text

    @property
    def near_text(self) -> str:
        """Which objectives are not significantly worse than the highest, named in the shorter way."""
        comparison = self.grid.comparison
        near = [key for key in self.others if key in comparison.near]
        untested = [key for key in self.others if key in comparison.untested]
        worse = [key for key in self.others if key not in (*near, *untested)]
        if not self.others:
            return "no other objective"
        if len(untested) == len(self.others):
            return "not tested"
        if untested:
            return f"{objectives_text(near) or 'none'}; not tested: {objectives_text(untested)}"
        if len(near) < 2 or len(near) <= len(worse):
            return objectives_text(near) or "none"
        return f"all others but {objectives_text(worse)}" if worse else f"all {count_text(len(near), 'other')}"

    @property
    def forest(self) -> Forest | None:
        """The differences of all objectives from con/con; None if there are none."""
        return Forest.of(self.block, self.grid)


def answers_of(blocks: Iterable[BlockResults]) -> tuple[Answer, ...]:
    """The answers of every block that has a number: for each block, one for each metric."""
    found = ((block, grid, grid.highest) for block in blocks for grid in block.grids.values())
    return tuple(Answer(block=block, grid=grid, best=best) for block, grid, best in found if best is not None)


def weight_changes(answers: Iterable[Answer]) -> dict[tuple[str, Verdict], list[float]]:
    """By how much weights differ significantly from con, averaged over the other weight, in tables of whole grids.

    Returns:
        By the weight in words, such as ``triplet weight cir``, and whether it is better or worse: a size in points for
        each table, never negative.
    """
    found: dict[tuple[str, Verdict], list[float]] = {}
    for comparisons in filter(None, (answer.grid.weights.comparisons for answer in answers)):
        for factor in FACTORS:
            for (name, other), change in comparisons[factor].differences.items():
                if other == "con" and change.verdict in ("better", "worse"):
                    found.setdefault((f"{factor} weight {name}", change.verdict), []).append(abs(change.estimate))
    return found


def answer_table(answers: Iterable[Answer], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = []
    for own in (answer for answer in answers if answer.grid.metric.name == measure):
        said = (own.best_text, own.mean, own.gain_text, own.near_text, missing_text(own.block))
        rows.append((own.block.key.title, own.grid.metric.title, *said))
    head = ("block", "metric", "highest", "mean", "over con/con (95 %)", "not significantly worse", "missing")
    return TextTable(title=measure, head=head, rows=tuple(rows), words=len(head))


def missing_text(block: BlockResults) -> str:
    """How many of a block's trainings are missing."""
    gaps = [gap.status for _, gap in block.gaps]
    if not gaps:
        return "nothing"
    done = sum(cell.n for cell in block.cells.values())
    counts = ", ".join(f"{gaps.count(status)} {status}" for status in dict.fromkeys(gaps))
    return f"{len(gaps)} of {len(gaps) + done} ({counts})"
