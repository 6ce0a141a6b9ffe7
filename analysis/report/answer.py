"""What the table of one metric says: the highest mean, its gain over con/con, and what is not significantly worse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goal_sweep.analysis.blocks import BlockResults, Grid, Objective
from goal_sweep.analysis.report.forest import Forest
from goal_sweep.analysis.report.parts import TextTable
from goal_sweep.analysis.wording import count_text, objectives_text
from goal_sweep.goal_core.evaluation.metrics import Metric
from goal_sweep.sweeps.results import BASELINE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """One metric of one block."""

    block: BlockResults
    grid: Grid
    best: Objective
    """The objective with the highest mean."""

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.grid.metric

    @property
    def mean(self) -> str:
        """The highest mean as printed, with its number of runs if seeds are missing."""
        return self.grid.cells[self.best].text().replace(" ± --", "")

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
        unjudged = [key for key in self.others if key in comparison.unjudged]
        worse = [key for key in self.others if key not in (*near, *unjudged)]
        if not self.others:
            return "no other objective"
        if len(unjudged) == len(self.others):
            return "not tested"
        if unjudged:
            return f"{objectives_text(near) or 'none'}; not tested: {objectives_text(unjudged)}"
        if len(near) < 2 or len(near) <= len(worse):
            return objectives_text(near) or "none"
        return f"all others but {objectives_text(worse)}" if worse else f"all {count_text(len(near), 'other')}"

    @property
    def forest(self) -> Forest | None:
        """The differences of all objectives from con/con; None if there are none."""
        return Forest.of(self.block, self.grid)


def answers_of(blocks: Iterable[BlockResults]) -> tuple[Answer, ...]:
    """The answers of every block that has a number: for each block, one for each metric."""
    return tuple(
        Answer(block=block, grid=grid, best=grid.highest)
        for block in blocks
        for grid in block.grids.values()
        if grid.highest is not None
    )


def answer_table(answers: Iterable[Answer], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            *(answer.block.key.title, answer.metric.title, answer.best_text, answer.mean),
            *(answer.gain_text, answer.near_text, missing_text(answer.block)),
        )
        for answer in answers
        if answer.metric.name == measure
    ]
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
