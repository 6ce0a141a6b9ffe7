"""The parts of a report: sections with figures and tables, and the trainings behind each cell.

They are plain values until the report is written.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from goal_sweep.analysis.blocks import BlockResults, Objective
from goal_sweep.analysis.figures.blocks import draw_heatmap
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.goal_core.evaluation.metrics import METRICS, measure_slug


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure of a report."""

    stem: str
    """Its file in the report's folder without an ending, with forward slashes."""
    title: str
    """What it shows; used as its caption and alternative text."""
    draw: Callable[..., Any]
    """A module's function that returns the figure."""
    arguments: tuple[Any, ...]

    @property
    def paths(self) -> tuple[str, str]:
        """Its files: the image that the pages show, and the one for print."""
        return f"{self.stem}.png", f"{self.stem}.pdf"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of text, for Markdown and HTML alike."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What a reader must know to read it, in full sentences."""
    words: int = 1
    """The number of leading columns with words; the others contain numbers and are aligned to the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTable:
    """One measure of a block, as a table and as a heatmap."""

    block: BlockResults
    measure: str
    """``R@1``, ``R@5``, ``R@10`` or ``rsum``."""
    colour: str

    @property
    def heatmap(self) -> Picture:
        """Its figure."""
        title = f"Heatmap of {self.measure}: {self.block.key.title}"
        arguments = (self.block, self.colour, self.measure)
        return Picture(stem=f"heatmaps/{self.stem}", title=title, draw=draw_heatmap, arguments=arguments)

    @property
    def stem(self) -> str:
        """The name of its files without an ending."""
        return f"{self.block.key.slug}-{measure_slug(self.measure)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: warnings and paragraphs, then figures, then tables."""

    anchor: str
    """Its id in the page, unique in the report."""
    title: str
    num_missing: int = 0
    """The number of missing results, shown beside the title."""
    warnings: tuple[str, ...] = ()
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Picture, ...] = ()
    grids: tuple[GridTable, ...] = ()
    """Of a block's section; other sections have ``tables``."""
    tables: tuple[TextTable, ...] = ()
    folded: bool = False
    """Whether a block's tables are collapsed in the page: those of the axes' other configurations."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.warnings or self.paragraphs or self.figures or self.grids or self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One seed of a cell."""

    seed: int
    state: str
    """``done``, or why there is no number."""
    values: Mapping[str, float]
    """By the metric's key; empty if the training does not count."""
    url: str
    """The run in MLflow; empty without one."""
    files: Mapping[str, str]
    """``log`` and ``checkpoint``, as their paths in the store."""
    links: Mapping[str, str]
    """From the report's folder; empty where there is no such file."""


BlockRuns = Mapping[Objective, list[RunRow]]
"""By ``(pair, triplet)``, in table order; seeds in order."""


def runs_of(inputs: Inputs, report_folder: Path, mlflow_run: str) -> list[tuple[BlockResults, BlockRuns]]:
    """The trainings of each block of which any was started, failed ones too; as of `write_report`."""
    results, made = inputs.results, list[tuple[BlockResults, BlockRuns]]()
    for block in inputs.blocks:
        runs = results.of_block(results.runs, block.key).sort_values("seed")
        if not (runs["attempts"] > 0).any():
            continue
        cells: dict[Objective, list[RunRow]] = {key: [] for key, cell in block.cells.items() if cell.requested}
        for run in runs.to_dict("records"):
            files = {name: str(run[name]) for name in ("log", "checkpoint")}
            row = RunRow(
                seed=int(run["seed"]),
                state=": ".join(filter(None, (str(run["state"]), str(run["reason"])))),
                values={m.key: float(run[m.test]) for m in METRICS.values()} if run["state"] == "done" else {},
                url=mlflow_run.replace("{training}", run["training"]) if run["attempts"] > 0 else "",
                files=files,
                links={name: _link(run["store"], path, report_folder) for name, path in files.items()},
            )
            cells[str(run["pair"]), str(run["triplet"])].append(row)
        made.append((block, cells))
    return made


def _link(store: str, path: str, report_folder: Path) -> str:
    file = Path(store, path).resolve()
    if not (store and path and file.is_file()):
        return ""
    return PurePath(os.path.relpath(file, report_folder.resolve())).as_posix()
