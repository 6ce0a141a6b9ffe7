"""A sweep's tracking to report files: read, aggregate, write. Every number in them comes from runs that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import pandas as pd

from analysis.figures.colours import Scale, assign_colours
from analysis.figures.heatmap import draw_heatmap
from analysis.figures.worker import Drawing
from analysis.published import published_blocks
from analysis.published.reference_tables import gradient_validation, state_of_the_art
from analysis.report.document import SHOWN_METRICS, Document, heatmap_name, to_markdown_document
from analysis.report.html import to_html
from analysis.report.learning import learning_chapters
from analysis.report.manifest import ReportFolder
from analysis.report.sections import (
    TextTable,
    comparison_tables,
    difference_tables,
    excluded_table,
    marginal_tables,
    missing_table,
)
from analysis.report.settings import settings_chapter, settings_notes
from analysis.report.side_by_side import columns_of, side_by_side_chapter
from analysis.report.significance import significance_chapter
from analysis.report.tables import to_csv, to_latex, to_markdown
from analysis.statistics.aggregate import aggregate, cells_frame, counted, stages_selected_on_test
from analysis.statistics.compare import compare_blocks
from analysis.statistics.paired import marginals, paired_differences
from analysis.tracking.blocks import Block
from analysis.tracking.fetch import SweepRuns, fetch_runs
from analysis.tracking.run_links import run_links
from analysis.tracking.run_schema import TEST_METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """What a report was made of and where it lies."""

    out_dir: Path
    files: tuple[Path, ...]
    """Every file of the report, ``report.md`` and ``report.html`` among them."""
    parent_run_id: str | None
    """The sweep's MLflow run, to attach the report to; None when tracking has none."""
    num_expected: int
    """Runs of a cell and stage that the sweep asks for."""
    num_counted: int
    """Those that are done and behind the numbers."""
    num_failed: int
    """Those that failed."""
    blocks: tuple[Block, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every number that was asked for is there."""
        return self.num_counted == self.num_expected


def write_report(
    tracking_uri: str,
    experiment: str,
    out_dir: Path,
    compare: Literal["published"] | None = None,
    beside: Sequence[tuple[str, str]] = (),
    scale: Scale = "paper",
) -> ReportResult:
    """Write tables, heatmaps, statistics and the two documents that show them.

    Files: ``report.md``, ``report.html`` (self-contained), ``cells`` (every cell and metric), ``runs`` (every run,
    counted or not, and why), ``differences`` and ``marginals`` as CSV and Parquet, ``tables/BLOCK.{md,tex,csv}``,
    ``tables/BLOCK-METRIC.{md,tex}``, ``heatmaps/BLOCK-METRIC.{png,pdf,svg}``, the chapters' figures, and
    ``report.json``, the list of them. Writing again replaces an earlier report in the same folder and touches nothing
    else there.

    Blocks without any number have no table or heatmap; the documents list what they miss.

    Args:
        tracking_uri: MLflow tracking URI.
        experiment: the sweep's name.
        out_dir: folder to write to; made when it is not there.
        compare: ``published`` adds the paper's numbers beside those of the same blocks.
        beside: tracking URI and name of other sweeps, whose numbers stand beside this one's.
        scale: ``paper`` colours tables as the paper's; ``colour-blind`` in one scale that all readers can tell apart.

    Raises:
        AnalysisError: tracking does not hold what a report needs.
    """
    sweep = fetch_runs(tracking_uri, experiment)
    blocks = aggregate(sweep)
    runs = counted(sweep)
    weights = pd.concat([marginals(runs, "pair"), marginals(runs, "triplet")])
    differences = paired_differences(runs)
    folder = ReportFolder(out_dir)
    document = _document(sweep, tracking_uri, blocks, weights, differences, compare, scale)
    filled = [block for block in blocks if not block.is_empty]
    with Drawing(len(filled) * len(SHOWN_METRICS)) as drawing:
        for block in filled:
            _write_block(folder, block, document.colours[block.key], drawing)
        document = _with_chapters(document, sweep, differences, beside, folder, drawing)
    frames = {"cells": cells_frame(blocks), "runs": _tidy(sweep.runs), "marginals": weights, "differences": differences}
    for name, frame in frames.items():
        folder.write(f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
        frame.to_parquet(folder.path(f"{name}.parquet"), index=False)
    folder.write("report.md", to_markdown_document(document))
    folder.write("report.html", to_html(document, out_dir))
    gaps = [gap for block in blocks for _, gap in block.gaps]
    return ReportResult(
        out_dir=out_dir,
        files=folder.finish(),
        parent_run_id=sweep.parent_run_id,
        num_expected=len(runs) + len(gaps),
        num_counted=len(runs),
        num_failed=sum(gap.status == "failed" for gap in gaps),
        blocks=blocks,
    )


def _with_chapters(
    document: Document,
    sweep: SweepRuns,
    differences: pd.DataFrame,
    beside: Sequence[tuple[str, str]],
    folder: ReportFolder,
    drawing: Drawing,
) -> Document:
    """What goes beyond the tables: what differences are worth, other stages and sweeps, how the cells learned."""
    sweeps: dict[str, Sequence[Block]] = {sweep.experiment: document.blocks}
    for uri, name in beside:
        label = name if name not in sweeps else f"{name} ({len(sweeps) + 1})"
        sweeps[label] = aggregate(fetch_runs(uri, name))
    groups = columns_of(sweeps)
    alone = [name for name in list(sweeps)[1:] if not any(c.sweep == name for g in groups.values() for c in g)]
    notes = [*settings_notes(sweep, document.blocks)]
    notes += [f"Sweep {name!r} has no finished block of the same dataset, framework and backbone." for name in alone]
    chapters = [
        significance_chapter(document.blocks, counted(sweep), differences, folder),
        side_by_side_chapter(groups, folder),
        *learning_chapters(sweep, document.blocks, folder, drawing),
        settings_chapter(sweep, document.blocks),
    ]
    found = tuple(chapter for chapter in chapters if chapter is not None)
    return replace(document, notes=(*document.notes, *notes), chapters=(*document.chapters, *found))


def _document(
    sweep: SweepRuns,
    tracking_uri: str,
    blocks: tuple[Block, ...],
    weights: pd.DataFrame,
    differences: pd.DataFrame,
    compare: Literal["published"] | None,
    scale: Scale,
) -> Document:
    comparisons = compare_blocks(blocks, published_blocks() if compare == "published" else ())
    notes = list(sweep.notes)
    on_test = [block.key.title for block in blocks if stages_selected_on_test(sweep, block.key)]
    if on_test:
        notes.append(
            f"SELECTED ON TEST, which flatters every number of theirs in this report: {'; '.join(on_test)}. "
            "Compare them with work that selects so, and with no other."
        )
    if compare and not comparisons:
        notes.append("No finished block of this sweep is one of the paper's, so there is nothing to compare with.")
    return Document(
        name=sweep.experiment,
        summary=_summary(sweep, blocks),
        notes=tuple(notes),
        blocks=blocks,
        colours=assign_colours((block.key for block in blocks), scale),
        missing=missing_table(blocks),
        excluded=excluded_table(sweep),
        marginals=tuple(marginal_tables(weights)),
        differences=tuple(difference_tables(differences)),
        run_links=run_links(sweep, tracking_uri),
        comparisons=(*comparison_tables(comparisons), *_papers_tables(blocks, compare)),
    )


def _papers_tables(blocks: Sequence[Block], compare: Literal["published"] | None) -> tuple[TextTable, ...]:
    return (state_of_the_art(blocks), gradient_validation(blocks)) if compare else ()


def _summary(sweep: SweepRuns, blocks: tuple[Block, ...]) -> str:
    """As in "132 of 135 trainings (cell and stage) are finished; missing: 2 failed, 1 waiting."."""
    gaps = [gap.status for block in blocks for _, gap in block.gaps]
    counts = ", ".join(f"{gaps.count(status)} {status}" for status in dict.fromkeys(gaps))
    done = len(counted(sweep))
    objectives = f"{len(sweep.objectives)} objective{'s' if len(sweep.objectives) != 1 else ''}"
    seeds = f"seed{'s' if len(sweep.seeds) != 1 else ''} {', '.join(map(str, sweep.seeds))}"
    missing = f"; missing: {counts}" if gaps else ""
    return f"{done} of {done + len(gaps)} trainings (cell and stage) are finished{missing}. {objectives}, {seeds}."


def _write_block(folder: ReportFolder, block: Block, colour: str, drawing: Drawing) -> None:
    for metric in SHOWN_METRICS:
        stem = block.slug if metric == "R@1" else f"{block.slug}-{metric.replace('@', '').lower()}"
        folder.write(f"tables/{stem}.md", to_markdown(block, metric))
        folder.write(f"tables/{stem}.tex", to_latex(block, colour, metric))
        picture = folder.path(heatmap_name(block, metric))
        for suffix in (".pdf", ".svg"):
            folder.path(str(PurePosixPath(heatmap_name(block, metric)).with_suffix(suffix)))
        drawing.draw(draw_heatmap, block, colour, picture, metric)
    folder.write(f"tables/{block.slug}.csv", to_csv(block))


def _tidy(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs in an order that does not depend on when they ran, test metrics last."""
    hidden = ("placed", "start_ms", "artifact_uri", "experiment_id")
    words = [name for name in runs.columns if "/" not in name and name not in hidden]
    metrics = [name for name in TEST_METRICS if name in runs.columns]
    order = ["dataset", "framework", "backbone", "stage", "pair", "triplet", "seed", "excluded", "run_id"]
    return runs[[*words, *metrics]].sort_values(order)
