"""A report as one HTML page that needs nothing else: styles, images and the script that sorts its lists are inside."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.blocks import Grid, gap_text, number_text
from analysis.figures import scale_of, text_colour
from analysis.report.document import GridTable, Report, Section
from analysis.run_schema import DIRECTION_TITLES


def report_to_html(report: Report, folder: Path) -> str:
    """The report as a self-contained page.

    Args:
        report: what to show.
        folder: the report's folder, in which its pictures lie; they are inlined.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [_section(section, folder) for section in report.sections]
    return environment.get_template("report.html.j2").render(report=report, sections=sections)


def _section(section: Section, folder: Path) -> dict[str, Any]:
    """A section as the template takes it."""
    grids = [table for table in section.tables if isinstance(table, GridTable)]
    return {
        **{name: getattr(section, name) for name in ("anchor", "title", "num_missing", "warnings", "paragraphs")},
        "figures": [(figure, _inlined(folder / figure.path)) for figure in section.figures],
        "tables": [_grid_table(table) if isinstance(table, GridTable) else {"text": table} for table in section.tables],
        "heatmaps": [(table, _inlined(folder / table.heatmap.path)) for table in grids],
    }


def _grid_table(table: GridTable) -> dict[str, Any]:
    grids = table.block.halves(table.measure)
    pairs = grids[0].pairs
    return {
        "measure": table.measure,
        "caption": table.block.caption(table.measure),
        "triplets": grids[0].triplets,
        "heads": [DIRECTION_TITLES[grid.metric.direction] for grid in grids],
        "rows": [(pair, [cell for grid in grids for cell in _row(grid, pair, table.colour)]) for pair in pairs],
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
                "text": number_text(cell, with_n=False),
                "fill": fill,
                "ink": text_colour(fill) if fill else "",
                "gaps": n + gap_text(cell) if cell.asked else "not asked for",
                "is_best": (pair, triplet) in best,
                "is_second": (pair, triplet) in second,
                "is_near": (pair, triplet) in grid.near,
            }
        )
    return row


def _inlined(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
