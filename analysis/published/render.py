"""The paper's blocks from the paper's numbers. Source: Xuan & Chen 2022, arXiv:2210.13188, tables as printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.errors import AnalysisError
from analysis.figures.colours import Scale, assign_colours
from analysis.figures.heatmap import draw_heatmap
from analysis.figures.rank_diagram import draw_rank_diagram
from analysis.published.reference_tables import gradient_validation, state_of_the_art
from analysis.report.significance import published_significance
from analysis.report.tables import text_table_to_latex, text_table_to_markdown, to_csv, to_latex, to_markdown
from analysis.statistics.noise import summary_within_noise
from analysis.tracking.blocks import Block, BlockKey, CellSummary, Grid
from analysis.tracking.run_schema import OBJECTIVES

NAMES = ("goal_grid", "state_of_the_art", "gradient_validation")
"""The published tables that can be rendered; the first is the one of grids."""
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


def published_blocks() -> tuple[Block, ...]:
    """The paper's blocks, in the order of its tables."""
    numbers = pd.read_csv(Path(__file__).parent / "goal_grid.csv")
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


def render_published(name: str, out: Path, scale: Scale = "paper") -> tuple[Path, ...]:
    """Write the paper's tables (Markdown, LaTeX, CSV) and, of its grids, heatmaps and rank diagrams.

    Args:
        name: one of :data:`NAMES`.
        out: folder to write to; made when it is not there.
        scale: ``paper`` or ``colour-blind``.

    Returns:
        The files written.

    Raises:
        AnalysisError: no published table has this name.
    """
    if name == "goal_grid":
        return (*_render_grids(out, scale), *_render_ranks(out))
    tables = {"state_of_the_art": state_of_the_art, "gradient_validation": gradient_validation}
    if name not in tables:
        raise AnalysisError(f"no published table {name!r}; known: {', '.join(NAMES)}")
    table = tables[name]()
    out.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(table.rows, columns=list(table.head))
    texts = {
        "md": f"{text_table_to_markdown(table)}\n\n{table.note}\n",
        "tex": text_table_to_latex(table, name.replace("_", "-")),
        "csv": frame.to_csv(index=False, lineterminator="\n"),
    }
    for suffix, text in texts.items():
        (out / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return tuple(out / f"{name}.{suffix}" for suffix in texts)


def _render_ranks(out: Path) -> list[Path]:
    files = []
    for (direction, metric), comparison in published_significance(published_blocks()).items():
        title = f"{direction} {metric} over {comparison.num_blocks} published blocks"
        figure = draw_rank_diagram(comparison, title)
        for suffix in ("png", "pdf", "svg"):
            files.append(out / f"ranks-{direction}-{metric.replace('@', '').lower()}.{suffix}")
            figure.savefig(files[-1], dpi=150)
    return files


def _render_grids(out: Path, scale: Scale) -> list[Path]:
    blocks = published_blocks()
    colours = assign_colours((block.key for block in blocks), scale)
    tables, heatmaps = out / "tables", out / "heatmaps"
    for folder in (tables, heatmaps):
        folder.mkdir(parents=True, exist_ok=True)
    files = []
    for block in blocks:
        texts = {"md": to_markdown(block), "tex": to_latex(block, colours[block.key]), "csv": to_csv(block)}
        for suffix, text in texts.items():
            files.append(tables / f"{block.slug}.{suffix}")
            files[-1].write_text(text, encoding="utf-8")
        picture = heatmaps / f"{block.slug}-r1.png"
        draw_heatmap(block, colours[block.key], picture)
        files += [picture, picture.with_suffix(".pdf"), picture.with_suffix(".svg")]
    return files


def _grid(direction: str, metric: str, rows: pd.DataFrame, words: tuple[str, ...]) -> Grid:
    printed = {(str(row["pair"]), str(row["triplet"])): row for row in rows.to_dict("records")}
    cells = {
        objective: CellSummary(mean=float(printed[objective]["mean"]), std=float(printed[objective]["std"]), n=NUM_RUNS)
        for objective in OBJECTIVES
    }
    middle = (*words, direction) in _MEDIAN_MIDPOINT
    return Grid(direction=direction, metric=metric, cells=cells, near=_near(cells), median_midpoint=middle)


def _near(cells: Mapping[tuple[str, str], CellSummary]) -> frozenset[tuple[str, str]]:
    """The cells within noise of the highest mean, as far as printed means and deviations of unpaired runs tell."""
    printed = {key: (cell.mean or 0.0, cell.std or 0.0) for key, cell in cells.items()}
    best = max(printed, key=lambda key: printed[key][0])
    return frozenset(
        key for key in printed if key != best and summary_within_noise(*printed[best], *printed[key], n=NUM_RUNS)
    )
