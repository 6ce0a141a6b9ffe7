"""The paper's blocks from the paper's numbers. Source: Xuan & Chen 2022, arXiv:2210.13188, tables as printed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.blocks import Block, BlockKey, CellSummary, Grid
from analysis.colours import assign_colours
from analysis.errors import AnalysisError
from analysis.heatmap import draw_heatmap
from analysis.run_schema import OBJECTIVES
from analysis.tables import to_csv, to_latex, to_markdown

NAMES = ("goal_grid",)
"""The published tables that are grids of objectives."""
NUM_RUNS = 3
"""Runs behind each printed mean; the paper does not name their seeds."""

# These three halves are printed with the middle of the scale at the median; the other 17 are linear.
_MEDIAN_MIDPOINT = {
    ("coco", "vsepp", "resnet152", "finetune", "i2t"),
    ("f30k", "vse_infty", "butd", "train", "i2t"),
    ("f30k", "vse_infty", "butd", "train", "t2i"),
}
_PROTOCOL = (
    f"Mean ± standard deviation over {NUM_RUNS} runs, as printed by Xuan & Chen 2022 (arXiv:2210.13188). "
    "Test split. Seeds, selection rule and data fingerprint are not stated there."
)


def published_blocks(name: str = "goal_grid") -> tuple[Block, ...]:
    """The paper's blocks, in the order of its tables.

    Raises:
        AnalysisError: ``name`` is not one of :data:`NAMES`.
    """
    if name not in NAMES:
        raise AnalysisError(f"no published grid {name!r}; known: {', '.join(NAMES)}")
    numbers = pd.read_csv(Path(__file__).parent / f"{name}.csv")
    columns = ["dataset", "framework", "backbone", "stage"]
    blocks = []
    for values, frame in numbers.groupby(columns, sort=False):
        words = dict(zip(columns, map(str, values), strict=True))
        key = BlockKey(**words, variant="paper", data_fingerprint="")
        grids = {
            (str(direction), str(metric)): _grid(str(direction), str(metric), part, tuple(words.values()))
            for (direction, metric), part in frame.groupby(["direction", "metric"], sort=False)
        }
        blocks.append(Block(key=key, slug=key.slug, protocol=_PROTOCOL, grids=grids))
    return tuple(blocks)


def render_published(name: str, out: Path) -> tuple[Path, ...]:
    """Write the paper's tables (Markdown, LaTeX, CSV) and heatmaps.

    Args:
        name: ``goal_grid``.
        out: folder to write to; made when it is not there.

    Returns:
        The files written.

    Raises:
        AnalysisError: no published grid has this name.
    """
    blocks = published_blocks(name)
    colours = assign_colours(block.key for block in blocks)
    tables, heatmaps = out / "tables", out / "heatmaps"
    for folder in (tables, heatmaps):
        folder.mkdir(parents=True, exist_ok=True)
    files = []
    for block in blocks:
        texts = {"md": to_markdown(block), "tex": to_latex(block, colours[block.key]), "csv": to_csv(block)}
        for suffix, text in texts.items():
            files.append(tables / f"{block.slug}.{suffix}")
            files[-1].write_text(text, encoding="utf-8")
        files.append(heatmaps / f"{block.slug}-r1.png")
        draw_heatmap(block, colours[block.key], files[-1])
    return tuple(files)


def _grid(direction: str, metric: str, rows: pd.DataFrame, words: tuple[str, ...]) -> Grid:
    printed = {(str(row["pair"]), str(row["triplet"])): row for row in rows.to_dict("records")}
    cells = {
        objective: CellSummary(mean=float(printed[objective]["mean"]), std=float(printed[objective]["std"]), n=NUM_RUNS)
        for objective in OBJECTIVES
    }
    middle = (*words, direction) in _MEDIAN_MIDPOINT
    return Grid(direction=direction, metric=metric, cells=cells, median_midpoint=middle)
