"""Tables in Markdown and CSV: tables of blocks, with a row for each pair weight, and tables of text."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.blocks import NEAR, Block, Grid, number_text
from analysis.statistics import cells_frame


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
    links: tuple[str, ...] = ()
    """The links of the first entry of each row in the HTML page; may be empty."""
    page_only: bool = False
    """Whether it appears only in the HTML page, collapsed under its title."""


def to_markdown(block: Block, measure: str = "R@1", *, with_gaps: bool = True) -> str:
    """The table with its caption, the best cells in bold, and (with ``with_gaps``) a line for each gap below."""
    grids = block.grids_of(measure)
    prefix = [f"{grid.metric.direction} " if len(grids) > 1 else "" for grid in grids]
    heads = [f"{name}T {triplet}" for name in prefix for triplet in grids[0].triplets]
    lines = [f"| {measure} | {' | '.join(heads)} |", f"|:---|{'---:|' * len(heads)}"]
    for pair in grids[0].pairs:
        row = [_markdown_cell(grid, pair, triplet) for grid in grids for triplet in grid.triplets]
        lines.append(f"| **P {pair}** | {' | '.join(row)} |")
    lines += ["", block.caption(measure)]
    if block.gaps and with_gaps:
        lines += ["", "Missing:", "", *(f"- {_markdown_text(line)}" for line in gap_lines(block))]
    return "\n".join(lines) + "\n"


def to_csv(block: Block) -> str:
    """All metrics of a block in tidy form, not rounded; columns as in :func:`analysis.statistics.cells_frame`."""
    return cells_frame([block]).to_csv(index=False, lineterminator="\n")


def text_table_to_markdown(table: TextTable) -> str:
    """A text table in Markdown, without its title and note."""
    rule = [":---" if column < table.words else "---:" for column in range(len(table.head))]
    return "\n".join(f"| {' | '.join(map(_markdown_entry, row))} |" for row in (table.head, rule, *table.rows))


def gap_lines(block: Block) -> list[str]:
    """A line for each missing result: objective, seed, status and reason."""
    return [
        f"{objective} seed {gap.seed}: {gap.status}" + (f" ({gap.reason})" if gap.reason else "")
        for objective, gap in block.gaps
    ]


def _markdown_cell(grid: Grid, pair: str, triplet: str) -> str:
    key = (pair, triplet)
    text = number_text(grid.cells[key])
    if key in grid.best():
        text = f"**{text}**"
    elif key in grid.second():
        text = f"<u>{text}</u>"
    return f"{text} {NEAR}" if key in grid.marked else text


def _markdown_entry(text: str) -> str:
    return _markdown_text(" ".join(text.split()))


def _markdown_text(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
