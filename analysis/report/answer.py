"""What a sweep answers: for each block and metric the best objective, its gain over con/con, and its equals.

The best is what the tables print in bold: the highest mean, or several that are equal as printed. If it has a single
run, no difference from it can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goal_sweep.analysis.blocks import Block, CellSummary, Grid, Objective
from goal_sweep.analysis.figures.comparisons import Forest, draw_forest
from goal_sweep.analysis.report.parts import Picture, TextTable
from goal_sweep.analysis.wording import count_text, mean_text, objectives_text
from goal_sweep.sweeps.results import BASELINE, MEASURES, Metric, measure_slug


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What one metric of one block says."""

    block: Block
    metric: Metric
    best: Objective
    """The objective with the highest mean."""

    @property
    def grid(self) -> Grid:
        """The metric's grid."""
        return self.block.grids[self.metric.key]

    @property
    def mean(self) -> str:
        """The best objective's mean as printed, with its number of runs if seeds are missing."""
        return _mean_text(self.grid.cells[self.best])

    @property
    def top(self) -> tuple[Objective, ...]:
        """The objectives with the highest mean as printed, in table order."""
        highest = self.grid.best()
        return tuple(key for key in self.grid.means if key in highest)

    @property
    def all_equal(self) -> bool:
        """Whether there are several objectives, all with the same mean as printed."""
        return bool(self.others) and len(self.top) == len(self.grid.means)

    @property
    def others(self) -> tuple[Objective, ...]:
        """The other objectives with a number, in table order."""
        return tuple(key for key in self.grid.means if key != self.best)

    @property
    def judged(self) -> tuple[Objective, ...]:
        """The objectives of which any difference has an interval, in table order."""
        named = {
            name for names, change in self.grid.comparison.differences.items() if change.p is not None for name in names
        }
        return tuple(key for key in self.grid.means if key in named)

    @property
    def is_judged(self) -> bool:
        """Whether any difference has an interval."""
        return bool(self.judged)

    @property
    def is_gain(self) -> bool:
        """Whether the best is above con/con by more than noise."""
        return self.grid.gain is not None and self.grid.gain.verdict == "better"

    @property
    def forest(self) -> Forest | None:
        """The differences of all objectives from con/con; None if there are none."""
        changes = self.grid.comparison.from_baseline
        if not changes:
            return None
        grids = self.block.grids_of(self.metric.name)
        return Forest(
            title=self.block.key.title,
            metric=self.metric,
            best=self.grid.best(),
            level=self.grid.marked,
            differences={key: changes.get(key) for key, cell in self.grid.cells.items() if cell.requested},
            beyond_seeds=self.grid.comparison.beyond_seeds,
            beside=tuple(change for grid in grids for change in grid.comparison.from_baseline.values()),
        )

    @property
    def best_text(self) -> str:
        """The best objective, or those that share the highest mean as printed."""
        if self.all_equal:
            return "all equal"
        return objectives_text(self.top) if len(self.top) <= 2 else f"{len(self.top)} equal"

    @property
    def gain_text(self) -> str:
        """The gain over con/con with its interval, in points."""
        if BASELINE in self.top and not self.is_gain:
            return "con/con itself" if len(self.top) == 1 else "none: con/con is as high"
        return "no con/con to compare with" if self.grid.gain is None else self.grid.gain.text

    @property
    def level_text(self) -> str:
        """Which objectives cannot be told apart from the best, named in the shorter way."""
        comparison = self.grid.comparison
        unjudged = [key for key in self.others if key in comparison.unjudged]
        level = [key for key in self.others if key in comparison.level and (self.all_equal or key not in self.top)]
        lower = [key for key in self.others if key not in (*unjudged, *level, *self.top)]
        if not self.others:
            return "no other objective"
        few = any(cell.n < 2 or cell.gaps for cell in map(self.grid.cells.__getitem__, (self.best, *unjudged)))
        why = "not judged, for lack of runs" if few else "not judged, because seeds agree exactly"
        if len(unjudged) == len(self.others):
            return why
        if unjudged:
            return f"{objectives_text(level) or 'none'}; {why}: {objectives_text(unjudged)}"
        if len(level) < 2 or len(level) <= len(lower):
            return objectives_text(level) or "none"
        return f"all others but {objectives_text(lower)}" if lower else f"all {count_text(len(level), 'other')}"


def answers_of(blocks: Iterable[Block]) -> tuple[Answer, ...]:
    """The answers of every block that has a number: for each block, one for each metric."""
    return tuple(
        Answer(block=block, metric=grid.metric, best=grid.highest)
        for block in blocks
        for grid in block.grids.values()
        if grid.highest is not None
    )


def answer_table(answers: Iterable[Answer], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            *(answer.block.key.title, answer.metric.title, answer.best_text, answer.mean),
            *(answer.gain_text, answer.level_text, missing_text(answer.block)),
        )
        for answer in answers
        if answer.metric.name == measure
    ]
    head = ("block", "metric", "highest", "mean", "over con/con (95 %)", "cannot be told apart from it", "missing")
    return TextTable(title=measure, head=head, rows=tuple(rows), words=len(head))


def forest_pictures(answers: Sequence[Answer]) -> tuple[Picture, ...]:
    """A figure for each measure: ``forest/MEASURE.{png,pdf}``."""
    by_measure = {measure: [own.forest for own in answers if own.metric.name == measure] for measure in MEASURES}
    return tuple(
        Picture(
            stem=f"forest/{measure_slug(measure)}",
            title=f"Differences from con/con: {measure}",
            draw=draw_forest,
            arguments=([forest for forest in forests if forest is not None], "difference from con/con"),
        )
        for measure, forests in by_measure.items()
        if any(forests)
    )


def missing_text(block: Block) -> str:
    """How many of a block's trainings are missing."""
    gaps = [gap.status for _, gap in block.gaps]
    if not gaps:
        return "nothing"
    done = sum(cell.n for cell in block.cells.values())
    counts = ", ".join(f"{gaps.count(status)} {status}" for status in dict.fromkeys(gaps))
    return f"{len(gaps)} of {len(gaps) + done} ({counts})"


def _mean_text(cell: CellSummary) -> str:
    return mean_text(cell.mean or 0.0, cell.std, always_std=False) + (f" (n = {cell.n})" if cell.gaps else "")
