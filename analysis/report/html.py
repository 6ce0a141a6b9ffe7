"""A report as one self-contained HTML page: it includes the styles, the images and the script that sorts lists."""

from __future__ import annotations

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.blocks import gap_text, number_text
from analysis.figures import scale_of, text_colour
from analysis.report.document import Report
from analysis.run_schema import DIRECTION_TITLES


def report_to_html(report: Report, folder: Path) -> str:
    """The report as a self-contained page.

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

    words = {"number_text": number_text, "gap_text": gap_text, "direction_titles": DIRECTION_TITLES}
    colours = {"scale_of": scale_of, "text_colour": text_colour}
    return environment.get_template("report.html.j2").render(report=report, inlined=inlined, **words, **colours)
