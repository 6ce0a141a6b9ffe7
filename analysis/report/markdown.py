"""Tables of blocks and of text in Markdown."""

from __future__ import annotations

from goal_sweep.analysis.blocks import NEAR, Block, Grid, Objective
from goal_sweep.analysis.report.parts import TextTable


def block_to_markdown(block: Block, measure: str = "R@1") -> str:
    """A block with its caption, the best cells in bold."""
    grids = block.grids_of(measure)
    prefix = [f"{grid.metric.direction} " if len(grids) > 1 else "" for grid in grids]
    heads = [f"{name}T {triplet}" for name in prefix for triplet in grids[0].triplets]
    lines = [f"| {measure} | {' | '.join(heads)} |", f"|:---|{'---:|' * len(heads)}"]
    for letter, name, objectives in grids[0].rows:
        rest = [""] * (len(grids[0].triplets) - len(objectives))
        row = [text for grid in grids for text in (*(_cell(grid, objective) for objective in objectives), *rest)]
        lines.append(f"| **{f'{letter} {name}'.strip()}** | {' | '.join(row)} |")
    return "\n".join([*lines, "", block.caption(measure)])


def table_to_markdown(table: TextTable) -> str:
    """A text table, without its title and note."""
    rule = [":---" if column < table.words else "---:" for column in range(len(table.head))]
    return "\n".join(f"| {' | '.join(map(_entry, row))} |" for row in (table.head, rule, *table.rows))


def _cell(grid: Grid, key: Objective) -> str:
    text = grid.cells[key].text()
    if key in grid.best():
        text = f"**{text}**"
    elif key in grid.second():
        text = f"<u>{text}</u>"
    return f"{text} {NEAR}" if key in grid.marked else text


def _entry(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
