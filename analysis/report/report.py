"""A sweep's tracking to report files: read, compute, write. Every number in them comes from runs that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import pandas as pd

from analysis.blocks import Block
from analysis.figures import FigureWriter, Scale, assign_colours, draw_heatmap, write_figure
from analysis.published import compare_blocks, published_blocks
from analysis.report.document import GridTable, Report, ReportFolder, Section, files_of_report, report_to_markdown
from analysis.report.html import report_to_html
from analysis.report.learning import learning_sections
from analysis.report.published_tables import published_section
from analysis.report.sections import (
    block_section,
    differences_section,
    missing_section,
    runs_section,
    settings_notes,
    settings_section,
    weights_section,
)
from analysis.report.side_by_side import columns_of, side_by_side_section
from analysis.report.significance import significance_section
from analysis.report.tables import to_csv, to_latex, to_markdown
from analysis.run_schema import MEASURES, measure_slug
from analysis.statistics import (
    FLATTERED,
    aggregate,
    cells_frame,
    counted,
    marginals,
    paired_differences,
    runs_frame,
    stages_selected_on_test,
)
from analysis.tracking import SweepRuns, attach_files, fetch_runs, publish_summary


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
    """Those that are done and counted in the numbers."""
    num_failed: int
    """Those that failed."""
    blocks: tuple[Block, ...]
    origin_notes: tuple[str, ...]
    """Which of the numbers were computed elsewhere; empty if none were."""

    @property
    def is_complete(self) -> bool:
        """Whether every number that was asked for is there."""
        return self.num_counted == self.num_expected


def write_report(
    tracking_uri: str,
    experiment: str,
    out_dir: Path,
    compare: Literal["published"] | None = None,
    others: Sequence[tuple[str, str]] = (),
    scale: Scale = "paper",
) -> ReportResult:
    """Write tables, heatmaps, statistics and the two documents that show them.

    Files: ``report.md``, ``report.html`` (self-contained), ``cells`` (every cell and metric), ``runs`` (every run,
    counted or not, with its settings and metrics), ``differences`` and ``marginals`` as CSV and Parquet,
    ``tables/BLOCK.{md,tex,csv}``, ``tables/BLOCK-MEASURE.{md,tex}``, ``heatmaps/BLOCK-MEASURE.{png,pdf,svg}``, the
    sections' figures, and ``report.json``, the list of them. Writing again replaces an earlier report in the same
    folder and touches nothing else there.

    Blocks without any number have no table or heatmap; the documents list what they miss.

    Args:
        tracking_uri: MLflow tracking URI.
        experiment: the sweep's name.
        out_dir: folder to write to; made when it is not there.
        compare: ``published`` sets the paper's numbers beside those of the same blocks.
        others: tracking URI and name of other sweeps, whose numbers are set beside this one's.
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
    report = _report(sweep, blocks, weights, differences, folder, compare=compare, others=others, scale=scale)
    frames = {"cells": cells_frame(blocks), "runs": runs_frame(sweep), "marginals": weights, "differences": differences}
    for name, frame in frames.items():
        folder.write(f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
        frame.to_parquet(folder.path(f"{name}.parquet"), index=False)
    folder.write("report.md", report_to_markdown(report))
    folder.write("report.html", report_to_html(report, out_dir))
    gaps = [gap for block in blocks for _, gap in block.gaps]
    return ReportResult(
        out_dir=out_dir,
        files=folder.finish(),
        parent_run_id=sweep.parent_run_id,
        num_expected=len(runs) + len(gaps),
        num_counted=len(runs),
        num_failed=sum(gap.status == "failed" for gap in gaps),
        blocks=blocks,
        origin_notes=tuple(_imported_note(sweep)),
    )


def attach_report(tracking_uri: str, parent_run_id: str, out_dir: Path) -> tuple[str, ...]:
    """Log the report that :func:`write_report` has written under ``report/`` of a run, in place of the one there.

    Returns:
        Artifact paths of the report.

    Raises:
        AnalysisError: no report in the folder, or tracking refuses it.
    """
    return attach_files(tracking_uri, parent_run_id, out_dir, files_of_report(out_dir), "report")


def refresh_summary(tracking_uri: str, name: str) -> str | None:
    """Describe a sweep in MLflow from what tracking holds of it; does nothing where it has no parent run.

    Returns:
        The parent run's id, or None.

    Raises:
        AnalysisError: tracking holds no run of the sweep, or refuses.
    """
    sweep = fetch_runs(tracking_uri, name)
    if sweep.parent_run_id is not None:
        publish_summary(tracking_uri, sweep.parent_run_id, name, aggregate(sweep), _imported_note(sweep))
    return sweep.parent_run_id


def _report(
    sweep: SweepRuns,
    blocks: tuple[Block, ...],
    weights: pd.DataFrame,
    differences: pd.DataFrame,
    folder: ReportFolder,
    *,
    compare: Literal["published"] | None,
    others: Sequence[tuple[str, str]],
    scale: Scale,
) -> Report:
    """All sections, in order; their figures and tables are in the folder when this returns."""
    sweeps: dict[str, Sequence[Block]] = {sweep.experiment: blocks}
    elsewhere = _imported_note(sweep)
    for uri, name in others:
        label = name if name not in sweeps else f"{name} ({len(sweeps) + 1})"
        other = fetch_runs(uri, name)
        sweeps[label] = aggregate(other)
        elsewhere += [f"Sweep {label!r}: {note}" for note in _imported_note(other)]
    groups = columns_of(sweeps)
    alone = [name for name in list(sweeps)[1:] if not any(c.sweep == name for g in groups.values() for c in g)]
    comparisons = compare_blocks(blocks, published_blocks() if compare else ())
    colours = assign_colours((block.key for block in blocks), scale)
    with FigureWriter(len(MEASURES) * sum(not block.is_empty for block in blocks)) as figures:
        sections = [block_section(block, colours[block.key]) for block in blocks]
        for section in sections:
            _write_tables(section, folder, figures)
        more = [
            missing_section(sweep, blocks),
            weights_section(weights),
            differences_section(differences),
            published_section(blocks, comparisons) if compare else None,
            significance_section(blocks, counted(sweep), differences, folder),
            side_by_side_section(groups, folder),
            *learning_sections(sweep, blocks, folder, figures),
            settings_section(sweep, blocks),
            runs_section(sweep),
        ]
    notes = [*sweep.notes, *_selection_note(sweep, blocks), *_source_note(sweep), *elsewhere]
    if compare and not comparisons:
        notes.append("No finished block of this sweep is one of the paper's, so there is nothing to compare with.")
    notes += settings_notes(sweep, blocks)
    notes += [f"Sweep {name!r} has no finished block of the same dataset, framework and backbone." for name in alone]
    return Report(
        name=sweep.experiment,
        summary=_summary(sweep, blocks),
        notes=tuple(notes),
        sections=(*sections, *(section for section in more if section is not None)),
    )


def _selection_note(sweep: SweepRuns, blocks: Sequence[Block]) -> list[str]:
    on_test = [block.key.title for block in blocks if stages_selected_on_test(sweep, block.key)]
    if not on_test:
        return []
    return [f"SELECTED ON TEST, directly or in an earlier stage: {'; '.join(on_test)}. {FLATTERED}"]


def _source_note(sweep: SweepRuns) -> list[str]:
    """How many of the counted trainings cannot be repeated from a commit alone."""
    changes = counted(sweep)["git_diff"]
    kinds = sorted(set(changes) - {""})
    if not kinds:
        return []
    few = f"{', '.join(kinds[:5])}{f' and {len(kinds) - 5} more' if len(kinds) > 5 else ''}"
    which = f"of {len(kinds)} kinds: {few}" if len(kinds) > 1 else f"all the same: {few}"
    modified = f"{(changes != '').sum()} of {len(changes)} trainings"
    return [f"{modified} ran from a source tree with uncommitted changes ({which})."]


def _imported_note(sweep: SweepRuns) -> list[str]:
    """How many of the counted trainings were computed elsewhere, and which archives they came from."""
    origins = counted(sweep)["imported"]
    archives = sorted(set(origins) - {""})
    if not archives:
        return []
    few = f"{'; '.join(archives[:5])}{f'; and {len(archives) - 5} more' if len(archives) > 5 else ''}"
    imported = f"{(origins != '').sum()} of {len(origins)} trainings"
    return [f"IMPORTED: the numbers of {imported} were computed elsewhere and are not verified. Archives: {few}."]


def _summary(sweep: SweepRuns, blocks: tuple[Block, ...]) -> str:
    """As in "132 of 135 trainings (cell and stage) are finished; missing: 2 failed, 1 waiting."."""
    gaps = [gap.status for block in blocks for _, gap in block.gaps]
    counts = ", ".join(f"{gaps.count(status)} {status}" for status in dict.fromkeys(gaps))
    done = len(counted(sweep))
    objectives = f"{len(sweep.objectives)} objective{'s' if len(sweep.objectives) != 1 else ''}"
    seeds = f"seed{'s' if len(sweep.seeds) != 1 else ''} {', '.join(map(str, sweep.seeds))}"
    missing = f"; missing: {counts}" if gaps else ""
    return f"{done} of {done + len(gaps)} trainings (cell and stage) are finished{missing}. {objectives}, {seeds}."


def _write_tables(section: Section, folder: ReportFolder, figures: FigureWriter) -> None:
    """Write the tables of a block's section, and their heatmaps."""
    grids = [table for table in section.tables if isinstance(table, GridTable)]
    for table in grids:
        block, measure = table.block, table.measure
        stem = block.slug if measure == "R@1" else f"{block.slug}-{measure_slug(measure)}"
        folder.write(f"tables/{stem}.md", to_markdown(block, measure))
        folder.write(f"tables/{stem}.tex", to_latex(block, table.colour, measure))
        heatmap = PurePosixPath(table.heatmap.path)
        paths = [folder.path(str(heatmap.with_suffix(suffix))) for suffix in (".png", ".pdf", ".svg")]
        figures.submit(write_figure, paths, draw_heatmap, block, table.colour, measure)
    for table in grids[:1]:
        folder.write(f"tables/{table.block.slug}.csv", to_csv(table.block))
