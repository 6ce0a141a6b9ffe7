"""The content of a report, the answer first, and its Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goal_sweep.analysis.blocks import Block
from goal_sweep.analysis.report.answer import Answer, answer_table
from goal_sweep.analysis.report.markdown import block_to_markdown, markdown_text, table_to_markdown
from goal_sweep.analysis.report.parts import Picture, Section
from goal_sweep.analysis.report.runs import BlockRuns
from goal_sweep.sweeps.results import MEASURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of one sweep's report."""

    name: str
    """The sweep's name."""
    summary: str
    """How many of the sweep's trainings are finished, in a sentence."""
    notes: tuple[str, ...]
    """What a reader must know before reading any number."""
    said: Mapping[str, Sequence[tuple[str, str]]]
    """What it says first by each measure: questions and answers; the finding has no question."""
    answers: tuple[Answer, ...]
    """What each metric of each block says; empty if nothing is finished."""
    forests: tuple[Picture, ...]
    """The figures of the answers' differences, one for each measure."""
    blocks: tuple[Section, ...]
    details: tuple[Section, ...]
    """Everything else; folded in the page."""
    runs: Sequence[tuple[Block, BlockRuns]]
    """The trainings behind every cell; only in the page."""
    mlflow_page: str
    """The address of the sweep's experiment in MLflow; empty without one."""


def report_to_markdown(report: Report) -> str:
    """The report in Markdown; figures are linked by relative paths."""
    parts = [f"# {markdown_text(report.name)}", *map(markdown_text, (report.summary, *report.notes))]
    if report.answers:
        parts.append("## The answer")
        for measure in (MEASURES[0], MEASURES[-1]):
            for question, text in report.said[measure]:
                parts.append(f"{f'**{measure}. {question}** ' * bool(question)}{markdown_text(text)}")
            parts.append(table_to_markdown(answer_table(report.answers, measure)))
        if report.forests:
            parts += ["## Differences from con/con", *map(_picture, report.forests)]
    for section in (*report.blocks, *report.details):
        parts += [] if section.is_empty else _section(section)
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {markdown_text(section.title)}", *map(markdown_text, (*section.warnings, *section.paragraphs))]
    parts += map(_picture, section.figures)
    for grid in section.grids:
        text = block_to_markdown(grid.block, grid.measure)
        parts += [f"### {grid.measure}", text, _picture(grid.heatmap)]
    for table in section.tables:
        parts += [f"### {markdown_text(table.title)}", table_to_markdown(table), markdown_text(table.note)]
    return parts


def _picture(figure: Picture) -> str:
    return f"![{markdown_text(figure.title)}]({figure.path})"
