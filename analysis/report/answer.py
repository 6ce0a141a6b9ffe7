"""What a sweep answers: for each block and metric the best objective, its gain over con/con, and its equals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from analysis.blocks import Block, Grid, Objective, count_text, mean_text
from analysis.figures import FigureWriter, Forest, draw_forest, write_figure
from analysis.report.document import FigureLink, ReportFolder
from analysis.report.tables import TextTable
from analysis.run_schema import BASELINE, MEASURES, METRICS, Metric, measure_slug


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The best objective's mean as printed."""
        return mean_text(self.grid.means[self.best], self.grid.cells[self.best].std, always_std=False)

    @property
    def others(self) -> tuple[Objective, ...]:
        """The other objectives with a number, in table order."""
        return tuple(key for key in self.grid.means if key != self.best)

    @property
    def has_baseline(self) -> bool:
        """Whether con/con has a number."""
        return BASELINE in self.grid.means

    @property
    def has_intervals(self) -> bool:
        """Whether the seeds allow an interval for any difference from the best."""
        return len(self.grid.without_interval) < len(self.others)

    @property
    def is_gain(self) -> bool:
        """Whether the best is above con/con by more than noise."""
        return self.grid.gain is not None and self.grid.gain.told_apart and self.grid.gain.estimate > 0

    @property
    def level(self) -> tuple[Objective, ...]:
        """The objectives that cannot be told apart from the best, in table order."""
        return tuple(key for key in self.others if key in self.grid.near)

    @property
    def forest(self) -> Forest | None:
        """The differences of all objectives from con/con; None if there are none."""
        if not self.grid.from_baseline:
            return None
        requested = [key for key, cell in self.grid.cells.items() if cell.requested]
        return Forest(
            title=self.block.key.title,
            metric=self.metric,
            best=self.best,
            level=self.grid.near,
            differences={key: self.grid.from_baseline.get(key) for key in requested},
        )

    def gain_text(self) -> str:
        """The gain over con/con with its interval, in points."""
        if self.best == BASELINE:
            return "con/con itself"
        gain = self.grid.gain
        if gain is None:
            return "no con/con to compare with"
        if gain.low is None or gain.high is None:
            return f"{signed(gain.estimate)} (no interval)"
        return f"{signed(gain.estimate)} ({signed(gain.low)} to {signed(gain.high)})"

    def level_text(self) -> str:
        """Which objectives cannot be told apart from the best, named in the shorter way."""
        level, others = self.level, self.others
        if not others:
            return "no other objective"
        if not self.has_intervals:
            return "unknown: too few seeds for an interval"
        if not level:
            return "none"
        if len(level) == len(others):
            return f"all {count_text(len(others), 'other')}" if len(others) > 1 else names(others)
        if len(level) > len(others) / 2:
            return f"all others but {names(key for key in others if key not in level)}"
        return names(level)


def answers_of(blocks: Iterable[Block]) -> tuple[Answer, ...]:
    """The answers of every block that has a number: for each block, one for each metric."""
    return tuple(
        Answer(block=block, metric=grid.metric, best=grid.highest)
        for block in blocks
        for grid in block.grids.values()
        if grid.highest is not None
    )


def of_measure(answers: Iterable[Answer], measure: str) -> tuple[Answer, ...]:
    """The answers of one measure, in both directions."""
    return tuple(answer for answer in answers if answer.metric.name == measure)


def by_block(answers: Iterable[Answer]) -> list[list[Answer]]:
    """The answers of each block, an entry for each metric."""
    found: dict[str, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.block.slug, []).append(answer)
    return list(found.values())


def lead(answers: Iterable[Answer], measure: str) -> str:
    """The answers of one measure over all blocks and directions, in a sentence or two."""
    here = of_measure(answers, measure)
    if not here:
        return ""
    ((most, wins),) = Counter(answer.best for answer in here).most_common(1)
    tables = count_text(len(here), "table")
    with_baseline = [answer for answer in here if answer.has_baseline]
    if not with_baseline:
        first = "con/con is not among the finished objectives, so there is no gain to state."
    elif not any(answer.has_intervals for answer in here):
        first = "There are too few seeds for an interval, so no difference can be called more than noise."
    else:
        gains = sum(answer.is_gain for answer in with_baseline)
        first = f"The best objective is above con/con by more than noise in {gains or 'none'} of {tables}."
    often = f" {'/'.join(most)} has the highest mean most often: {wins} of {len(here)}." if wins > 1 else ""
    return f"{measure}: {first}{often}"


def answer_table(answers: Iterable[Answer], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            answer.block.key.title,
            answer.metric.title,
            "/".join(answer.best),
            answer.mean,
            answer.gain_text(),
            answer.level_text(),
            missing_text(answer.block),
        )
        for answer in of_measure(answers, measure)
    ]
    head = ("block", "metric", "best", "mean", "over con/con (95 %)", "cannot be told apart from it", "missing")
    return TextTable(title=measure, head=head, rows=tuple(rows), words=len(head))


def winner_table(answers: Sequence[Answer]) -> TextTable:
    """A row for each block and a column for each metric: the best objective and its gain over con/con."""
    rows = [
        (found[0].block.key.title, *(f"{'/'.join(answer.best)} {winner_gain(answer)}".strip() for answer in found))
        for found in by_block(answers)
    ]
    head = ("block", *(metric.label for metric in METRICS.values()))
    note = "The best objective and its gain over con/con in points; * where the gain is more than noise."
    return TextTable(title="Best objective by metric", head=head, rows=tuple(rows), words=len(head), note=note)


def winner_gain(answer: Answer) -> str:
    """The gain in short: ``+1.7*``; empty where there is none to state."""
    gain = answer.grid.gain
    return "" if gain is None else signed(gain.estimate) + ("*" if answer.is_gain else "")


def forest_figures(answers: Sequence[Answer], folder: ReportFolder, figures: FigureWriter) -> tuple[FigureLink, ...]:
    """Draw a figure for each measure: ``forest/MEASURE.{png,pdf}``."""
    links = []
    for measure in MEASURES:
        panels = [forest for answer in of_measure(answers, measure) if (forest := answer.forest)]
        if not panels:
            continue
        png = f"forest/{measure_slug(measure)}.png"
        paths = [folder.path(str(PurePosixPath(png).with_suffix(suffix))) for suffix in (".png", ".pdf")]
        figures.submit(write_figure, paths, draw_forest, panels)
        links.append(FigureLink(path=png, title=f"Differences from con/con: {measure}"))
    return tuple(links)


def missing_text(block: Block) -> str:
    """How many of a block's trainings are missing."""
    gaps = [gap.status for _, gap in block.gaps]
    if not gaps:
        return "nothing"
    done = sum(cell.n for cell in next(iter(block.grids.values())).cells.values())
    counts = ", ".join(f"{gaps.count(status)} {status}" for status in dict.fromkeys(gaps))
    return f"{len(gaps)} of {len(gaps) + done} ({counts})"


def signed(value: float) -> str:
    """A difference in points: ``+1.7``, ``-0.3``; ``0.0`` has no sign."""
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text


def names(objectives: Iterable[Objective]) -> str:
    """``con/nca, sig/cir``."""
    return ", ".join("/".join(key) for key in objectives)
