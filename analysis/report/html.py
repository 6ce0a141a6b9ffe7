"""A report as one HTML page that needs nothing else: styles, images and the script that sorts its lists are inside."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.figures.colours import scale_of, text_colour
from analysis.report.document import Document, heatmap_name
from analysis.report.sections import objective_table
from analysis.report.tables import caption, halves
from analysis.tracking.blocks import Block, Grid, direction_title, gap_text, number_text
from analysis.tracking.run_schema import METRICS, RSUM


def to_html(document: Document, folder: Path) -> str:
    """The report as a self-contained page.

    Args:
        document: what to show.
        folder: the report's folder, in which the heatmaps lie; they are inlined.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    blocks = [_block(block, document.colours[block.key], folder) for block in document.blocks]
    pictures = {f.path: _inlined(folder / f.path) for chapter in document.chapters for f in chapter.figures}
    page = environment.get_template("report.html.j2")
    return page.render(document=document, blocks=blocks, pictures=pictures)


def _block(block: Block, full: str, folder: Path) -> dict[str, Any]:
    metrics = [metric for metric in (*METRICS, RSUM[1]) if halves(block, metric)]
    return {
        "slug": block.slug,
        "title": block.key.title,
        "protocol": block.protocol,
        "is_empty": block.is_empty,
        "num_gaps": len(block.gaps),
        "tables": [] if block.is_empty else [_table(block, metric, full) for metric in metrics],
        "recalls": None if block.is_empty else objective_table(block),
        "images": [] if block.is_empty else [_image(block, metric, folder) for metric in metrics],
    }


def _table(block: Block, metric: str, full: str) -> dict[str, Any]:
    grids = halves(block, metric)
    return {
        "metric": metric,
        "caption": caption(block, metric),
        "triplets": grids[0].triplets,
        "heads": [direction_title(grid.direction) for grid in grids],
        "rows": [(pair, [cell for grid in grids for cell in _row(grid, pair, full)]) for pair in grids[0].pairs],
    }


def _row(grid: Grid, pair: str, full: str) -> list[dict[str, Any]]:
    scale, best, second = scale_of(grid, full), grid.best(), grid.second()
    row = []
    for triplet in grid.triplets:
        cell = grid.cells[pair, triplet]
        fill = scale.colour(cell.mean) if scale and cell.mean is not None else None
        n = f"n={cell.n}, " if cell.n and cell.gaps else ""
        row.append(
            {
                "text": number_text(replace(cell, gaps=())),
                "fill": fill,
                "ink": text_colour(fill) if fill else "",
                "gaps": n + gap_text(cell) if cell.asked else "not asked for",
                "is_best": (pair, triplet) in best,
                "is_second": (pair, triplet) in second,
                "is_near": (pair, triplet) in grid.near,
            }
        )
    return row


def _image(block: Block, metric: str, folder: Path) -> dict[str, str]:
    return {"metric": metric, "source": _inlined(folder / heatmap_name(block, metric))}


def _inlined(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
