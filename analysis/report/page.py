"""A report as one self-contained HTML page: it includes the styles, the images and a short script."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from goal_sweep.analysis.blocks import BlockResults, CellSummary, Objective
from goal_sweep.analysis.figures.colours import scale_of, text_colour
from goal_sweep.analysis.report.answer import interval_note, missing_text
from goal_sweep.analysis.report.markdown import Report
from goal_sweep.analysis.wording import objectives_text, signed
from goal_sweep.goal_core.evaluation.metrics import DIRECTION_TITLES, DIRECTIONS, MAIN_METRICS, MEASURES, measure_slug
from goal_sweep.sweeps.results import BASELINE

_SENTENCE_ENDS = re.compile(r"(?<=[.]) (?=[A-Z])")
_TOGETHER = re.compile(r"(?<=[\d)f]) (?=[%=±])|(?<=\bp) (?=[=<])|(?<=[=<±]) (?=\d)|(?<=\b[PT]) (?=[a-z])")
"""Spaces at which a number would part from its sign, or a weight from its letter."""
_JOINTS = re.compile(r"(?<=[_./])(?=\w)")
_PIXELS = 1.5
"""Of an image for each one of the page."""
_LONG = 16
"""Letters of the longest word that is never broken, such as ``sig-ms/cir``."""


def unbroken(text: str) -> Markup:
    """A text whose lines end between words: names of objectives stay whole, and long names break at their joints."""
    return Markup(" ").join(map(_unbroken_word, _TOGETHER.sub("\u00a0", text).split(" ")))


def _unbroken_word(word: str) -> Markup:
    if len(word) > _LONG:
        return Markup("<wbr>").join(map(escape, _JOINTS.split(word)))
    return Markup('<span class="whole">{}</span>').format(word) if re.search("[a-z][-_][a-z]", word) else escape(word)


def shared_caption(blocks: Sequence[BlockResults], measure: str) -> str:
    """The sentences that hold for all blocks, but for a title; empty without a block."""
    first, *others = (_sentences(block, measure) for block in blocks) if blocks else [[]]
    return " ".join(text for text in first if all(text in other for other in others))


def own_caption(block: BlockResults, blocks: Sequence[BlockResults], measure: str) -> str:
    """What `shared_caption` of the blocks lacks of a block's caption, but for its title; empty for a block alone."""
    shared = _SENTENCE_ENDS.split(shared_caption(blocks, measure))
    return " ".join(text for text in _sentences(block, measure) if text not in shared)


def _sentences(block: BlockResults, measure: str) -> list[str]:
    """Those of a block's caption, without its title."""
    return _SENTENCE_ENDS.split(block.caption(measure).replace(f" {block.key.title}.", "", 1))


_FUNCTIONS = (interval_note, missing_text, objectives_text, own_caption, scale_of, shared_caption, signed, text_colour)


def report_to_html(report: Report, folder: Path) -> str:
    """The report as a page that needs no scripts and no other file; the images in its folder are inlined."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def image(path: str) -> Markup:
        """The attributes of an image, in a size at which all figures have texts of one size."""
        content = (folder / path).read_bytes()
        width, data = int.from_bytes(content[16:20], "big"), base64.b64encode(content).decode("ascii")
        return Markup('src="data:image/png;base64,{}" width="{}"').format(data, round(width / _PIXELS))

    environment.filters["unbroken"] = unbroken
    environment.globals.update({function.__name__: function for function in _FUNCTIONS})
    environment.globals.update(
        baseline=BASELINE,
        cell_id=_cell_id,
        direction_titles=DIRECTION_TITLES,
        directions=DIRECTIONS,
        image=image,
        mean_and_spread=_mean_and_spread,
        main_metrics=MAIN_METRICS,
        measures=MEASURES,
        server=report.mlflow_page.partition("/#")[0],
        shown_blocks=[section.grids[0].block for section in report.blocks if section.grids],
        slug=measure_slug,
    )
    return environment.get_template("report.html.j2").render(report=report)


def _cell_id(block: BlockResults, key: Objective) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"cell-{block.key.slug}-{key[0]}-{key[1]}")


def _mean_and_spread(cell: CellSummary) -> tuple[str, str]:
    mean, _, spread = cell.text(with_n=False).partition(" ")
    return mean, spread if cell.std is not None else ""
