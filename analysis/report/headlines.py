"""What MLflow's page says of a block: its best objective in a line, and all objectives in order."""

from __future__ import annotations

from analysis.blocks import Block, Grid
from analysis.wording import signed
from sweeps.results import BASELINE, MAIN_METRICS, RSUM

_SHOWN = sorted(MAIN_METRICS, key=lambda metric: metric is not RSUM)


def headline(block: Block) -> str:
    """Which objective has the highest rsum and by how much, with a caution where the seeds do not support it."""
    grid = block.grids[RSUM.key]
    if grid.highest is None:
        return f"nothing finished; {len(block.gaps)} missing"
    text = f"highest rsum **{'/'.join(grid.highest)}** {grid.cells[grid.highest].text()}"
    if grid.gain is not None:
        text += f", {signed(grid.gain.estimate)} over con/con {grid.cells[BASELINE].text()}{_caution(grid)}"
    done = sum(cell.n for cell in grid.cells.values())
    return text + (f"; {len(block.gaps)} of {len(block.gaps) + done} trainings missing" if block.gaps else "")


def _caution(grid: Grid) -> str:
    """What the one rule of the report says of the gain."""
    if grid.gain is None or grid.gain.p is None:
        return " (too few seeds to know the spread)"
    return "" if grid.gain.told_apart else " (within noise)"


def ranking(block: Block) -> str:
    """All objectives in Markdown, the highest rsum first; empty without a number."""
    if block.is_empty:
        return ""
    grids = [block.grids[metric.key] for metric in _SHOWN]
    order = sorted(grids[0].cells, key=lambda key: -(grids[0].cells[key].mean or -1.0))
    rows = ["| rank | objective | rsum | image to text R@1 | text to image R@1 | n |"]
    rows.append("| ---: | :--- | ---: | ---: | ---: | ---: |")
    for rank, key in enumerate(order, start=1):
        cells = [grid.cells[key] for grid in grids]
        if cells[0].requested:
            numbers = " | ".join(cell.text() for cell in cells)
            rows.append(f"| {rank if cells[0].n else '--'} | {'/'.join(key)} | {numbers} | {cells[0].n} |")
    return "\n".join(rows)
