"""Writes the report of a sweep from its results table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from goal_sweep.analysis.figures.canvas import Scale, assign_colours, write_figure
from goal_sweep.analysis.report.answer import answers_of
from goal_sweep.analysis.report.folder import PAGE, publish
from goal_sweep.analysis.report.latex import block_to_latex
from goal_sweep.analysis.report.pages import Report, report_to_html, report_to_markdown
from goal_sweep.analysis.report.parts import runs_of
from goal_sweep.analysis.report.sections import blocks, changes
from goal_sweep.analysis.report.sentences import first_words, notes, said, summary
from goal_sweep.analysis.report.verdict import verdict
from goal_sweep.analysis.results import SweepResults, with_numbers
from goal_sweep.analysis.statistics.aggregation import Inputs, cells_frame, missing_counts
from goal_sweep.goal_core.basics.atomic import scratch_folder
from goal_sweep.goal_core.evaluation.metrics import MEASURES


@dataclass(frozen=True, kw_only=True)
class ReportResult:
    """A written report: its folder, and what it says."""

    folder: Path
    inputs: Inputs

    @property
    def num_counted(self) -> int:
        """The number of trainings (cell and stage) that are finished."""
        return len(self.inputs.results.counted)

    @cached_property
    def missing(self) -> Mapping[str, int]:
        """The number of those that are not, by status."""
        return missing_counts(self.inputs.results, self.inputs.blocks)

    @property
    def num_expected(self) -> int:
        """The number of trainings that the sweep requests."""
        return self.num_counted + sum(self.missing.values())

    @property
    def verdict(self) -> tuple[str, ...]:
        """What the page says first; without results, how far the sweep is."""
        return opening(self.inputs)

    def as_json(self) -> dict[str, Any]:
        """What a script reads of a report; docs/report.md explains the keys."""
        cells = cells_frame(self.inputs.blocks)
        return {
            "report": str(self.folder / PAGE),
            "expected": self.num_expected,
            "counted": self.num_counted,
            "seeds": list(self.inputs.results.header.seeds),
            "verdict": list(self.verdict),
            "sentences": list(first_words(self.inputs, MEASURES)),
            "cells": cells.astype(object).where(cells.notna(), None).to_dict("records"),  # JSON knows no NaN
            "missing": [
                {"block": block.key.title, "objective": objective, **asdict(gap)}
                for block in self.inputs.blocks
                for objective, gap in block.gaps
            ],
        }


def opening(inputs: Inputs) -> tuple[str, ...]:
    """The verdict, which a page says first; without results, how far the sweep is."""
    return verdict(inputs) or first_words(inputs, ())


def write_report(
    results: SweepResults,
    folder: Path,
    *,
    compare_with_paper: bool = False,
    scale: Scale = "paper",
    mlflow_run: str = "",
) -> ReportResult:
    """Write tables, heatmaps, statistics and the two documents that show them; docs/report.md lists the files.

    Writing again replaces an earlier report in the same folder and changes nothing else there. Blocks without any
    number have no table or heatmap; the documents list what they lack.

    Args:
        compare_with_paper: show the paper's numbers beside those of the same blocks.
        scale: ``paper`` colours tables as in the paper; ``colour-blind`` uses one scale that is safe for all
            readers.
        mlflow_run: the address of a run in MLflow, with ``{training}`` in the place of the training's key; empty
            without MLflow.
    """
    inputs = Inputs(results=results)
    folder.mkdir(parents=True, exist_ok=True)
    details = (
        blocks.missing_section(inputs),
        changes.tuned_section(inputs),
        changes.search_section(inputs),
        changes.ablation_section(inputs),
        changes.published_section(inputs) if compare_with_paper else None,
        changes.stages_section(inputs),
        blocks.curves_section(inputs),
        blocks.weights_section(inputs),
        blocks.settings_section(inputs),
    )
    colours = assign_colours((block.key for block in inputs.blocks), scale)
    report = Report(
        name=results.header.sweep,
        summary=summary(results, inputs.blocks),
        notes=tuple(notes(inputs)),
        verdict=verdict(inputs),
        said={measure: said(inputs, measure) for measure in MEASURES},
        answers=answers_of(inputs.answered),
        blocks=tuple(
            blocks.block_section(own, colours[own.key], folded=own not in inputs.answered) for own in inputs.blocks
        ),
        details=tuple(filter(None, details)),
        runs=runs_of(inputs, folder, mlflow_run),
        mlflow_run=mlflow_run,
    )
    grids = [grid for section in report.blocks for grid in section.grids]
    figures = [picture for section in report.details for picture in section.figures]
    texts = {f"tables/{grid.stem}.tex": block_to_latex(grid.block, grid.colour, grid.measure) for grid in grids}
    texts |= {"cells.csv": _csv(cells_frame(inputs.blocks)), "runs.csv": _csv(runs_frame(results))}
    texts["report.md"] = report_to_markdown(report)
    with scratch_folder() as made:
        for part in ("curves", "heatmaps", "tables"):
            (made / part).mkdir()
        for picture in (*figures, *(grid.heatmap for grid in grids)):
            write_figure([made / path for path in picture.paths], picture.draw, *picture.arguments)
        texts[PAGE] = report_to_html(report, made)  # which contains the figures
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8", newline="\n")
        publish(made, folder)
    return ReportResult(folder=folder, inputs=inputs)


def runs_frame(results: SweepResults) -> pd.DataFrame:
    """Every training that reports, in the order of the tables: the columns of the results table, settings included.

    Columns in which all are empty are left out; a setting is a number where all are.
    """
    runs = results.runs.drop(columns=["role", "candidate", "status", "ranks"]).rename(columns={"state": "status"})
    runs = runs.sort_values(["dataset", "framework", "backbone", "stage", "pair", "triplet", "seed", "training"])
    runs = with_numbers(runs)
    used = [name for name in runs.columns if runs[name].notna().any() and not (runs[name] == "").all()]
    return runs[used].drop(columns="store" if runs["store"].nunique() == 1 else [], errors="ignore")


def _csv(frame: pd.DataFrame) -> str:
    """A frame as CSV. No text in it, such as the reason of a failure, is a formula to a spreadsheet."""
    texts = frame.select_dtypes(exclude="number").columns
    harmless = {name: frame[name].replace(r"^(?=[=+\-@\t\r])(?![+-]?[\d.]+$)", "'", regex=True) for name in texts}
    return str(frame.assign(**harmless).to_csv(index=False, lineterminator="\n"))
