"""A report as one self-contained HTML page: it includes the styles, the images and a short script."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.blocks import Block, CellSummary, Difference, gap_text, mean_text
from analysis.figures import scale_of, text_colour, verdict
from analysis.report.answer import by_block, lead, missing_text, names, signed, winner_gain
from analysis.report.captions import own_caption, shared_caption
from analysis.report.contents import Report
from analysis.report.document import GridTable
from analysis.report.survival import survival_lead, survival_table
from analysis.run_schema import (
    BASELINE,
    DIRECTION_TITLES,
    DIRECTIONS,
    MAIN_METRICS,
    MEASURES,
    METRICS,
    measure_slug,
)
from analysis.tracking import LOCAL_PAGE


def report_to_html(report: Report, folder: Path) -> str:
    """The report as a self-contained page, which can be read without scripts.

    Args:
        report: the report to show.
        folder: the report's folder, which contains its images; they are inlined.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def inlined(path: str) -> str:
        return f"data:image/png;base64,{base64.b64encode((folder / path).read_bytes()).decode('ascii')}"

    functions = (by_block, gap_text, lead, missing_text, names, scale_of, signed, text_colour, verdict, winner_gain)
    environment.globals.update({function.__name__: function for function in functions})
    environment.globals.update(survival_lead=survival_lead, survival_table=survival_table)
    environment.globals.update(
        baseline=BASELINE,
        cell_id=_cell_id,
        direction_titles=DIRECTION_TITLES,
        directions=DIRECTIONS,
        inlined=inlined,
        interval_text=_interval_text,
        local_page=LOCAL_PAGE,
        mean_of=_mean_of,
        main_metrics=MAIN_METRICS,
        measures=MEASURES,
        metrics=tuple(METRICS.values()),
        own_caption=own_caption,
        shared_caption=shared_caption,
        shown_blocks=_shown_blocks,
        slug=measure_slug,
        spread_of=_spread_of,
    )
    return environment.get_template("report.html.j2").render(report=report)


def _shown_blocks(report: Report) -> list[Block]:
    """The blocks with a number."""
    tables = (section.tables[0] for section in report.blocks if section.tables)
    return [table.block for table in tables if isinstance(table, GridTable)]


def _cell_id(block: Block, key: tuple[str, str]) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"cell-{block.slug}-{key[0]}-{key[1]}")


def _mean_of(cell: CellSummary) -> str:
    return "--" if cell.mean is None else f"{cell.mean:.1f}"


def _spread_of(cell: CellSummary) -> str:
    return "" if cell.mean is None else mean_text(cell.mean, cell.std).partition(" ")[2]


def _interval_text(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return f"{signed(difference.estimate)}, no interval"
    return f"{signed(difference.estimate)} (95 %: {signed(difference.low)} to {signed(difference.high)})"
