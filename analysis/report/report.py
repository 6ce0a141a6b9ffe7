"""Read a sweep's runs from tracking and write its report files. Every number in them comes from runs that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import pandas as pd

from analysis.blocks import Block, BlockKey
from analysis.figures import FigureWriter, Scale, assign_colours, draw_heatmap, write_figure
from analysis.published import GridComparison, compare_blocks, published_blocks
from analysis.report.ablation import ablation_section, axes_note
from analysis.report.answer import answers_of, forest_figures
from analysis.report.compared import published_section
from analysis.report.contents import Report, report_to_markdown
from analysis.report.document import GridTable, ReportFolder, Section, files_of_report
from analysis.report.html import report_to_html
from analysis.report.latex import stack_to_latex, stacks, to_latex
from analysis.report.learning import learning_sections
from analysis.report.links import best_runs
from analysis.report.notes import font_note, imported_note, selection_note, source_note, summary
from analysis.report.orders import orders_of
from analysis.report.overview import overview_to_latex
from analysis.report.runs import Locate, runs_of
from analysis.report.sections import (
    block_section,
    differences_section,
    flaw_notes,
    missing_section,
    recalls_section,
    settings_notes,
    settings_section,
    stacked_notes,
    weights_section,
)
from analysis.report.side_by_side import Groups, columns_of, side_by_side_section
from analysis.report.significance import significance_section
from analysis.report.tables import to_csv, to_markdown
from analysis.report.trails import budget_section, sensitivity_section
from analysis.report.tuning import choices_section, tuned_section, tuning_answer, tuning_notes
from analysis.run_schema import GRID_DEFAULT, MEASURES, measure_slug
from analysis.statistics import (
    aggregate,
    at_first_point,
    block_pairs,
    cells_frame,
    counted,
    crossed_runs,
    first_blocks,
    marginals,
    missing_counts,
    paired_differences,
    runs_frame,
    survivals,
)
from analysis.tracking import SweepRuns, attach_files, fetch_runs, publish_models, publish_summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """What a report contains and where it is."""

    out_dir: Path
    files: tuple[Path, ...]
    """Every file of the report, including ``report.md`` and ``report.html``."""
    parent_run_id: str | None
    """The sweep's MLflow run, to which the report can be attached; None when tracking has none."""
    num_expected: int
    """The number of trainings (cell and stage) that the sweep requests."""
    num_counted: int
    """The number of these that count."""
    num_failed: int
    """The number of these that failed."""
    seeds: tuple[int, ...]
    """The seeds that the sweep requests."""
    blocks: tuple[Block, ...]
    best_runs: tuple[str, ...]
    """The MLflow runs of the best objective of each block."""
    origin_notes: tuple[str, ...]
    """Which of the numbers were computed elsewhere; empty if none were."""
    tuning_notes: tuple[str, ...]
    """Of a tuned sweep whether the ranking survives tuning, or how far it is; empty for others."""

    @property
    def is_complete(self) -> bool:
        """Whether no result is missing."""
        return self.num_counted == self.num_expected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Results:
    """Everything that the sections of a report are computed from."""

    sweep: SweepRuns
    blocks: tuple[Block, ...]
    marginals: pd.DataFrame
    differences: pd.DataFrame
    sweeps: Mapping[str, Sequence[Block]]
    """The blocks of this sweep and of those it is compared with, by the sweep's unique label; this sweep is first."""
    elsewhere: tuple[str, ...]
    """Which numbers of the other sweeps were imported."""

    @classmethod
    def read(cls, tracking_uri: str, experiment: str, others: Sequence[tuple[str, str]]) -> _Results:
        sweep = fetch_runs(tracking_uri, experiment)
        blocks, runs = aggregate(sweep), at_first_point(sweep, counted(sweep))
        sweeps: dict[str, Sequence[Block]] = {sweep.experiment: first_blocks(sweep, blocks)}
        elsewhere: list[str] = []
        for uri, name in others:
            label = name if name not in sweeps else f"{name} ({len(sweeps) + 1})"
            other = fetch_runs(uri, name)
            sweeps[label] = first_blocks(other, aggregate(other))
            elsewhere += [f"Sweep {label!r}: {note}" for note in imported_note(other)]
        return cls(
            sweep=sweep,
            blocks=blocks,
            marginals=pd.concat([marginals(crossed_runs(runs), factor) for factor in ("pair", "triplet")]),
            differences=paired_differences(runs),
            sweeps=sweeps,
            elsewhere=tuple(elsewhere),
        )

    @property
    def first(self) -> tuple[Block, ...]:
        """The blocks of the first value of every axis and of the main grid, of which the statistics speak."""
        return first_blocks(self.sweep, self.blocks)

    @property
    def answered(self) -> tuple[Block, ...]:
        """The same of both grids, of which the answer speaks."""
        return first_blocks(self.sweep, self.blocks, "*")

    @property
    def as_printed(self) -> tuple[Block, ...]:
        """The blocks that are compared with the paper: the default grid, whose objectives have the same settings."""
        return first_blocks(self.sweep, self.blocks, GRID_DEFAULT) if self.sweep.grids else self.first

    def frames(self) -> dict[str, pd.DataFrame]:
        """The frames that are written as CSV and Parquet, by file name."""
        cells, runs = cells_frame(self.blocks), runs_frame(self.sweep)
        return {"cells": cells, "runs": runs, "marginals": self.marginals, "differences": self.differences}


def write_report(
    tracking_uri: str,
    experiment: str,
    out_dir: Path,
    compare: Literal["published"] | None = None,
    others: Sequence[tuple[str, str]] = (),
    scale: Scale = "paper",
    locate: Locate | None = None,
) -> ReportResult:
    """Write tables, heatmaps, statistics and the two documents that show them.

    Files: ``report.md``, ``report.html`` (self-contained), ``cells`` (every cell and metric), ``runs`` (every run,
    counted or not, with its settings and metrics), ``differences`` and ``marginals`` as CSV and Parquet,
    ``tables/BLOCK.{md,tex,csv}``, ``tables/BLOCK-MEASURE.{md,tex}``, ``heatmaps/BLOCK-MEASURE.{png,pdf,svg}``,
    ``forest/MEASURE.{png,pdf}``, the figures of the sections, and ``report.json``, the list of files. Writing again
    replaces an earlier report in the same folder and changes nothing else there.

    Blocks without any number have no table or heatmap; the documents list what they lack.

    Args:
        tracking_uri: MLflow tracking URI.
        experiment: the sweep's name.
        out_dir: folder to write to; created if missing.
        compare: ``published`` shows the paper's numbers beside those of the same blocks.
        others: tracking URI and name of other sweeps, whose numbers are shown beside this one's.
        scale: ``paper`` colours tables as in the paper; ``colour-blind`` uses one scale that is safe for all readers.
        locate: finds the log and the checkpoint of a training, to which the page leads; None without them.

    Raises:
        AnalysisError: tracking lacks what a report needs.
    """
    results = _Results.read(tracking_uri, experiment, others)
    folder = ReportFolder(out_dir)
    report = _report(results, folder, compare_with_paper=compare is not None, scale=scale, locate=locate)
    for name, frame in results.frames().items():
        folder.write(f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
        frame.to_parquet(folder.path(f"{name}.parquet"), index=False)
    folder.write("report.md", report_to_markdown(report))
    folder.write("report.html", report_to_html(report, out_dir))
    missing, num_counted = missing_counts(results.sweep, results.blocks), len(counted(results.sweep))
    return ReportResult(
        out_dir=out_dir,
        files=folder.finish(),
        parent_run_id=results.sweep.parent_run_id,
        num_expected=num_counted + missing.total(),
        num_counted=num_counted,
        num_failed=missing["failed"],
        seeds=tuple(results.sweep.seeds),
        blocks=results.blocks,
        best_runs=best_runs(results.sweep, results.blocks),
        origin_notes=tuple(imported_note(results.sweep)),
        tuning_notes=tuning_answer(results.sweep, report.survivals),
    )


def attach_report(tracking_uri: str, parent_run_id: str, out_dir: Path) -> tuple[str, ...]:
    """Log the report in ``out_dir`` as ``report/`` among a run's artifacts, replacing an earlier one.

    Returns:
        Artifact paths of the report.

    Raises:
        AnalysisError: there is no report in the folder, or it cannot be logged.
    """
    return attach_files(tracking_uri, parent_run_id, out_dir, files_of_report(out_dir), "report")


def refresh_summary(tracking_uri: str, name: str, store: str | None = None) -> str | None:
    """Describe a sweep in MLflow from its tracked runs; does nothing if it has no parent run.

    Args:
        tracking_uri: MLflow tracking URI.
        name: the sweep's name.
        store: its results folder; if given, the best runs also get models.

    Returns:
        The parent run's id, or None.

    Raises:
        AnalysisError: tracking has no run of the sweep, or cannot be written.
    """
    sweep = fetch_runs(tracking_uri, name)
    if sweep.parent_run_id is not None:
        blocks = aggregate(sweep)
        survived = survivals(sweep, block_pairs(first_blocks(sweep, blocks, "*")))
        notes = [*imported_note(sweep), *tuning_answer(sweep, survived)]
        publish_summary(tracking_uri, sweep.parent_run_id, name, blocks, notes)
        if store is not None:
            publish_models(tracking_uri, sweep.parent_run_id, store, best_runs(sweep, blocks))
    return sweep.parent_run_id


def _report(
    results: _Results, folder: ReportFolder, *, compare_with_paper: bool, scale: Scale, locate: Locate | None
) -> Report:
    """The report; its figures and tables are in the folder when this returns."""
    sweep, blocks, first, answered = results.sweep, results.blocks, results.first, results.answered
    groups = columns_of(results.sweeps)
    comparisons = compare_blocks(results.as_printed, published_blocks()) if compare_with_paper else None
    colours = assign_colours((block.key for block in blocks), scale)
    block_sections = [
        replace(block_section(block, colours[block.key]), folded=block not in answered) for block in blocks
    ]
    answers, survived = answers_of(answered), survivals(sweep, block_pairs(answered))
    with FigureWriter(len(MEASURES) * sum(not block.is_empty for block in blocks)) as figures:
        for section in block_sections:
            _write_tables(section, folder, figures)
        _write_paper_tables(answered, first, colours, folder)
        forests = forest_figures(answers, folder, figures)
        details = _details(results, groups, comparisons, colours, folder, figures)
    return Report(
        name=sweep.experiment,
        summary=summary(sweep, blocks),
        notes=tuple(_notes(results, groups, comparisons)),
        survivals=survived,
        answers=answers,
        forests=forests,
        blocks=tuple(block_sections),
        details=tuple(section for section in details if section is not None),
        runs=runs_of(sweep, blocks, folder.folder, locate),
    )


def _details(
    results: _Results,
    groups: Groups,
    comparisons: Sequence[GridComparison] | None,
    colours: Mapping[BlockKey, str],
    folder: ReportFolder,
    figures: FigureWriter,
) -> list[Section | None]:
    """The sections after the tables, in order. ``comparisons`` are None when not compared with the paper."""
    sweep, blocks, first, differences = results.sweep, results.blocks, results.first, results.differences
    return [
        missing_section(sweep, blocks),
        tuned_section(sweep, results.answered, colours, folder, figures),
        choices_section(sweep, folder),
        sensitivity_section(sweep, folder, figures),
        budget_section(sweep, folder, figures),
        ablation_section(sweep, blocks, folder, figures),
        None if comparisons is None else published_section(results.as_printed, comparisons, orders_of(blocks)),
        side_by_side_section(groups, folder),
        *learning_sections(sweep, first, folder, figures),
        significance_section(first, at_first_point(sweep, counted(sweep)), differences, folder),
        weights_section(results.marginals),
        differences_section(differences, first),
        recalls_section(blocks),
        settings_section(sweep, blocks),
    ]


def _notes(results: _Results, groups: Groups, comparisons: Sequence[GridComparison] | None) -> list[str]:
    sweep, blocks = results.sweep, results.blocks
    notes = [
        *sweep.notes,
        *axes_note(sweep),
        *tuning_notes(sweep),
        *selection_note(sweep, blocks),
        *source_note(sweep),
    ]
    notes += imported_note(sweep)
    notes += [*results.elsewhere, *font_note(results.sweeps, results.blocks)]
    if comparisons is not None and not comparisons:
        notes.append("The paper has no finished block of this sweep, so only the order of the objectives is compared.")
    notes += settings_notes(sweep, blocks)
    notes += flaw_notes(sweep, blocks)
    notes += stacked_notes(sweep, blocks)
    shown = {column.sweep for columns in groups.values() for column in columns}
    return notes + [
        f"Sweep {name!r} has no finished block with the same dataset, framework and backbone."
        for name in list(results.sweeps)[1:]
        if name not in shown
    ]


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


def _write_paper_tables(
    blocks: Sequence[Block], first: Sequence[Block], colours: Mapping[BlockKey, str], folder: ReportFolder
) -> None:
    """Write the tables of more than one block: stages or backbones stacked, and the overview of all blocks.

    The overview is of the blocks ``first``, because its mean ranks are over blocks of one grid.
    """
    for measure in MEASURES:
        suffix = "" if measure == "R@1" else f"-{measure_slug(measure)}"
        for stack in stacks(blocks):
            folder.write(f"tables/{stack.slug}{suffix}.tex", stack_to_latex(stack, colours, measure))
        if overview := overview_to_latex(first, colours, measure):
            folder.write(f"tables/overview{suffix}.tex", overview)
