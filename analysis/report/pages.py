"""The documents: a report in Markdown, the answer first, and as one HTML page; and the model card of its best model.

The page is self-contained: it includes the styles, the images and a short script.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from goal_sweep.analysis.blocks import BLOCK_COLUMNS, NEAR, BlockKey, BlockResults, CellSummary, Grid, Objective
from goal_sweep.analysis.figures.canvas import scale_of, text_colour
from goal_sweep.analysis.report.answer import Answer, answer_table, interval_note, missing_text
from goal_sweep.analysis.report.parts import BlockRuns, Picture, Section, TextTable
from goal_sweep.analysis.report.verdict import known_names
from goal_sweep.analysis.results import SweepResults, best_runs
from goal_sweep.analysis.statistics.aggregation import TEST_SELECTION_WARNING, stages_selected_on_test
from goal_sweep.analysis.wording import mean_text, objectives_text, seeds_text, signed
from goal_sweep.goal_core.evaluation.metrics import (
    DIRECTION_TITLES,
    DIRECTIONS,
    MAIN_METRICS,
    MEASURES,
    METRICS,
    measure_slug,
)
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.sweeps.axes import needed
from goal_sweep.sweeps.results import BASELINE

_MARKS: Final = re.compile(r"[\\`*\[\]|~$&]|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=[wW]{3})\.|^[#>]|^[+-](?= |--)")
"""What Markdown would take for markup, a link or the start of a block; `_` only at the edge of a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of one sweep's report."""

    name: str
    summary: str
    """How many of the sweep's trainings are finished, in a sentence."""
    notes: tuple[str, ...]
    """What a reader must know before reading any number."""
    verdict: tuple[str, ...]
    """The lines of `verdict`; empty if nothing is finished."""
    said: Mapping[str, Mapping[str, Sequence[str]]]
    """What the tables say, by measure and grid, in sentences."""
    answers: tuple[Answer, ...]
    """What each metric of each block says; empty if nothing is finished."""
    blocks: tuple[Section, ...]
    details: tuple[Section, ...]
    """Everything else; folded in the page."""
    runs: Sequence[tuple[BlockResults, BlockRuns]]
    """The trainings behind every cell; only in the page."""
    mlflow_run: str
    """As of `write_report`."""


def report_to_markdown(report: Report) -> str:
    """The report in Markdown; figures are linked by relative paths."""
    parts = [f"# {markdown_text(report.name)}", *map(markdown_text, (report.summary, *report.notes))]
    if report.answers:
        parts += ["## The answer", "\n".join(f"- {markdown_text(text)}" for text in report.verdict)]
    for section in report.blocks:
        parts += [] if section.is_empty else _section(section)
    if report.answers:
        parts.append("## The tables in words")
        for measure in (MEASURES[0], MEASURES[-1]):
            for grid, sentences in report.said[measure].items():
                name = f"{measure}, {grid}" if grid else measure
                parts.append("\n".join([f"**{name}**", "", *(f"- {markdown_text(text)}" for text in sentences)]))
            parts.append(table_to_markdown(answer_table(report.answers, measure)))
    for section in report.details:
        parts += [] if section.is_empty else _section(section)
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {markdown_text(section.title)}", *map(markdown_text, (*section.warnings, *section.paragraphs))]
    parts += map(_picture, section.figures)
    for grid in section.grids:
        parts += [f"### {grid.measure}", block_to_markdown(grid.block, grid.measure), _picture(grid.heatmap)]
    for table in section.tables:
        parts += [f"### {markdown_text(table.title)}", table_to_markdown(table), markdown_text(table.note)]
    return parts


def _picture(figure: Picture) -> str:
    return f"![{markdown_text(figure.title)}]({figure.paths[0]})"


def markdown_text(text: str) -> str:
    """A text for Markdown, in one line, of which nothing is markup."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split())).replace("<", "&lt;")


def block_to_markdown(block: BlockResults, measure: str = "R@1") -> str:
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


_TEXTS = (interval_note, known_names, missing_text, objectives_text, own_caption, shared_caption, signed)


def page_environment() -> Environment:
    """What the templates of pages are read with: they share styles and the marks of unbroken names."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(unbroken=unbroken, objective_name=lambda key: objective_name(*key))
    environment.globals.update(measures=MEASURES, slug=measure_slug)
    return environment


def report_to_html(report: Report, folder: Path) -> str:
    """The report as a page that needs no scripts and no other file; the images in its folder are inlined."""
    environment = page_environment()

    def image(path: str) -> Markup:
        """The attributes of an image, in a size at which all figures have texts of one size."""
        content = (folder / path).read_bytes()
        width, data = int.from_bytes(content[16:20], "big"), base64.b64encode(content).decode("ascii")
        return Markup('src="data:image/png;base64,{}" width="{}"').format(data, round(width / _PIXELS))

    environment.globals.update(
        {function.__name__: function for function in (*_TEXTS, scale_of, text_colour)},
        baseline=BASELINE,
        cell_id=lambda block, key: re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(("cell", block.key.slug, *key))),
        direction_titles=DIRECTION_TITLES,
        directions=DIRECTIONS,
        image=image,
        mean_and_spread=_mean_and_spread,
        main_metrics=MAIN_METRICS,
        server=report.mlflow_run.partition("/#")[0],
        shown_blocks=[section.grids[0].block for section in report.blocks if section.grids],
    )
    return environment.get_template("report.html.j2").render(report=report)


def _mean_and_spread(cell: CellSummary) -> tuple[str, str]:
    mean, _, spread = cell.text(with_n=False).partition(" ")
    return mean, spread if cell.std is not None else ""


def model_card(results: SweepResults, objective: str = "", *, published: tuple[str, str] | None = None) -> str:
    """The card, in Markdown, of the sweep's best model on val: that of `best_runs`, whose arguments it has and errors.

    The weights that it names are those of the seed with the highest val rsum.

    Args:
        published: the repository on the Hugging Face hub, and the file in it, in the place of that in the store.
    """
    runs = best_runs(results, objective)
    best, seeds = runs.iloc[0], runs.sort_values("seed")
    key = BlockKey(**{name: best[name] for name in BLOCK_COLUMNS}, configuration=best["configuration"])
    weights = published[1] if published else str(Path(best["store"], best["checkpoint"]))
    imports, path = "import goal_sweep\n", repr(weights)
    if published:
        imports += "from huggingface_hub import hf_hub_download\n"
        path = "hf_hub_download({!r}, {!r})".format(*published)
    settings, over = results.settings(seeds).iloc[0], seeds_text(list(seeds["seed"]))
    facts = {
        "objective": objective_name(best["pair"], best["triplet"]),
        "data": f"{key.dataset}, fingerprint {key.data_fingerprint}",
        "model": f"{key.framework}, {key.backbone}",
        "stage": key.stage,
        "trained": f"{over}, with goal-sweep at commit {best['git_commit'] or 'unknown'}",
        "weights": f"{weights} (seed {best['seed']}, epoch {best['best_epoch']:.0f})",
        **{str(name): value for name, value in settings.items() if value and name != "seed"},
    }
    described = TextTable(title="", head=("what", "value"), rows=tuple(facts.items()), words=2)
    val = [mean_text(seeds[metric.val].mean(), seeds[metric.val].std()) for metric in METRICS.values()]
    test = [mean_text(seeds[metric.test].mean(), seeds[metric.test].std()) for metric in METRICS.values()]
    rows = ("val, selected epoch", *val), ("test, same weights", *test)
    recalls = TextTable(title="", head=("recall, %", *METRICS), rows=rows)
    warning = f"\nThe epoch was selected on the test split. {TEST_SELECTION_WARNING}\n"
    title = replace(key, configuration=needed(key.configuration)).title
    return (
        f"# {markdown_text(facts['objective'] + ': ' + title)}\n\n{table_to_markdown(described)}\n\n"
        f"Mean ± sample standard deviation over {over}:\n\n{table_to_markdown(recalls)}\n"
        f"{warning if stages_selected_on_test(results, key) else ''}"
        f"\n```python\n{imports}\nmodel = goal_sweep.load({path})\n```\n"
    )
