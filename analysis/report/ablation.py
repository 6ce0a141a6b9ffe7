"""The section on a sweep's axes: a table and a figure for each setting with several values, the others held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.axes import points_of
from analysis.blocks import Block, file_stem, number_text
from analysis.figures import FigureWriter, draw_ablation
from analysis.report.document import ReportFolder, Section
from analysis.report.drawing import linked_figure
from analysis.report.latex import text_table_to_latex
from analysis.report.tables import TextTable
from analysis.run_schema import MAIN_METRICS, METRICS, Metric, measure_slug
from analysis.statistics import Ablation, ablation_frame, ablations
from analysis.tracking import SweepRuns

_DRAWN = (METRICS["i2t_r1"], METRICS["t2i_r1"])


def ablation_section(
    sweep: SweepRuns, blocks: Sequence[Block], folder: ReportFolder, figures: FigureWriter
) -> Section | None:
    """Tables of every axis and figures of those with numbers; None for a sweep without axes or without a result.

    Files: ``ablation.csv``, ``tables/ablation-BLOCK-AXIS-METRIC.tex``, ``ablation/BLOCK-AXIS.{png,pdf}``.

    Args:
        sweep: the sweep and its runs.
        blocks: all its blocks.
        folder: the report's folder.
        figures: writes the figures to it.
    """
    found = ablations(sweep, blocks)
    if not found:
        return None
    folder.write("ablation.csv", ablation_frame(found).to_csv(index=False, lineterminator="\n"))
    links, tables = [], []
    for one in found:
        stem = file_stem(replace(one.key, point="").slug, one.axis.name)
        if one.axis.numbers is not None:
            cells = {metric: one.cells(metric) for metric in _DRAWN}
            title = f"{one.title}{f', {one.others}' if one.others else ''}"
            arguments = title, one.axis.name, one.axis.numbers, cells, one.untouched
            name = f"ablation/{stem}"
            links.append(linked_figure(folder, figures, name, f"Ablation: {title}", draw_ablation, *arguments))
        for metric in MAIN_METRICS:
            table = _table(one, metric)
            if table.rows:
                tables.append(table)
                words = (stem, *(() if metric.direction == "both" else (metric.direction,)), measure_slug(metric.name))
                label = f"ablation-{'-'.join(words)}"
                folder.write(f"tables/{label}.tex", text_table_to_latex(table, label))
    paragraph = (
        "Each table varies one setting and holds the others at their first value. Numbers are test recalls, mean ± "
        "standard deviation (ddof = 1) over seeds. A value chosen by these numbers is chosen on the test split: choose "
        "by val (selected/val_rsum in runs.csv), and report its test numbers."
    )
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=(paragraph,),
        figures=tuple(links),
        tables=tuple(tables),
    )


def axes_note(sweep: SweepRuns) -> list[str]:
    """Of which point of the axes the report speaks first."""
    if not sweep.axes:
        return []
    axes = "; ".join(f"{axis.name} {', '.join(axis.values)}" for axis in sweep.axes)
    return [
        f"AXES: {axes}. The answer and the statistics are those of the first values ({points_of(sweep.axes)[0]}), not "
        "of the best; the other points follow in their own tables and under Ablations."
    ]


def _table(one: Ablation, metric: Metric) -> TextTable:
    rows = [
        ("/".join(objective), *map(number_text, cells))
        for objective, cells in one.cells(metric).items()
        if objective not in one.untouched
    ]
    same = ", ".join("/".join(objective) for objective in one.cells(metric) if objective in one.untouched)
    held = f"Held fixed: {one.others}. " if one.others else ""
    without = f"{same} {'do' if ',' in same else 'does'} not depend on {one.axis.name}." if same else ""
    return TextTable(
        title=f"{metric.title} by {one.title}",
        head=("objective", *(f"{one.axis.name} {value}" for value in one.axis.values)),
        rows=tuple(rows),
        note=f"{held}{without}".strip() or "Mean ± standard deviation (ddof = 1) over seeds.",
    )
