"""Tables of blocks and of text in Markdown."""

from __future__ import annotations

import re
from typing import Final

from goal_sweep.analysis.blocks import NEAR, Block, Grid, Objective
from goal_sweep.analysis.report.parts import TextTable

_MARKS: Final = re.compile(r"[\\`*\[\]|~$&]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=[wW]{3})\.|^[#>]|^[+-](?= |--)")
"""What Markdown would take for markup, a link or the start of a block; `_` only at the edge of a word."""


def markdown_text(text: str) -> str:
    """A text for Markdown, in one line, of which nothing is markup."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split())).replace("<", "&lt;")


def block_to_markdown(block: Block, measure: str = "R@1") -> str:
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
