"""A report in Markdown, the answer first, and its tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from goal_sweep.analysis.blocks import NEAR, BlockResults, Grid, Objective
from goal_sweep.analysis.report.answer import Answer, answer_table
from goal_sweep.analysis.report.parts import BlockRuns, Picture, Section, TextTable
from goal_sweep.goal_core.evaluation.metrics import MEASURES

_MARKS: Final = re.compile(r"[\\`*\[\]|~$&]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=[wW]{3})\.|^[#>]|^[+-](?= |--)")
"""What Markdown would take for markup, a link or the start of a block; `_` only at the edge of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of one sweep's report."""

    name: str
    """The sweep's name."""
    summary: str
    """How many of the sweep's trainings are finished, in a sentence."""
    notes: tuple[str, ...]
    """What a reader must know before reading any number."""
    said: Mapping[str, Mapping[str, Sequence[str]]]
    """What it says first, by measure and grid, in sentences."""
    answers: tuple[Answer, ...]
    """What each metric of each block says; empty if nothing is finished."""
    blocks: tuple[Section, ...]
    details: tuple[Section, ...]
    """Everything else; folded in the page."""
    runs: Sequence[tuple[BlockResults, BlockRuns]]
    """The trainings behind every cell; only in the page."""
    mlflow_page: str
    """The address of the sweep's experiment in MLflow; empty without one."""


def report_to_markdown(report: Report) -> str:
    """The report in Markdown; figures are linked by relative paths."""
    parts = [f"# {markdown_text(report.name)}", *map(markdown_text, (report.summary, *report.notes))]
    if report.answers:
        parts.append("## The answer")
        for measure in (MEASURES[0], MEASURES[-1]):
            for grid, sentences in report.said[measure].items():
                name = f"{measure}, {grid}" if grid else measure
                parts.append("\n".join([f"**{name}**", "", *(f"- {markdown_text(text)}" for text in sentences)]))
            parts.append(table_to_markdown(answer_table(report.answers, measure)))
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
    return f"![{markdown_text(figure.title)}]({figure.paths[0]})"


def markdown_text(text: str) -> str:
    """A text for Markdown, in one line, of which nothing is markup."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split())).replace("<", "&lt;")


def block_to_markdown(block: BlockResults, measure: str = "R@1") -> str:
    """A block with its caption, the best cells in bold."""
    grids = block.grids_of(measure)
    prefix = [f"{grid.metric.direction} " if len(grids) > 1 else "" for grid in grids]
    heads = [f"{name}T {markdown_text(triplet)}" for name in prefix for triplet in grids[0].triplets]
    lines = [f"| {measure} | {' | '.join(heads)} |", f"|:---|{'---:|' * len(heads)}"]
    for letter, name, objectives in grids[0].rows:
        rest = [""] * (len(grids[0].triplets) - len(objectives))
        row = [text for grid in grids for text in (*(_cell(grid, objective) for objective in objectives), *rest)]
        lines.append(f"| **{f'{letter} {markdown_text(name)}'.strip()}** | {' | '.join(row)} |")
    return "\n".join([*lines, "", markdown_text(block.caption(measure))])


def table_to_markdown(table: TextTable) -> str:
    """A text table, without its title and note."""
    rule = [":---" if column < table.words else "---:" for column in range(len(table.head))]
    rows = [[markdown_text(entry) for entry in row] for row in (table.head, *table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


def _cell(grid: Grid, key: Objective) -> str:
    text = grid.cells[key].text()
    if key in grid.best():
        text = f"**{text}**"
    elif key in grid.second():
        text = f"<u>{text}</u>"
    return f"{text} {NEAR}" if key in grid.marked else text
