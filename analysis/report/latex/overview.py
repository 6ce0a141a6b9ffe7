"""All blocks of a report in one compact LaTeX table: a row for each block and direction, grouped by data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt

from analysis.blocks import Block, BlockKey, Grid, Objective
from analysis.figures.colours import ColourScale, scale_of
from analysis.report.latex.blocks import (
    float_to_latex,
    model_text,
    number_to_latex,
    protocol_notes,
    unit_text,
    weight_to_latex,
)
from analysis.report.latex.text import latex_text
from analysis.statistics.ranks import rank_blocks
from analysis.wording import name_text
from sweeps.results import PAIRS, TRIPLETS, in_order, measure_slug

_ARROWS = {"i2t": r"I$\rightarrow$T", "t2i": r"T$\rightarrow$I", "both": ""}


def overview_to_latex(blocks: Sequence[Block], colours: Mapping[BlockKey, str], measure: str = "R@1") -> str | None:
    """All blocks at a glance: a row for each block and direction, by data set, and a column for each objective.

    Returns:
        The table, of means; its last column is their standard deviation, pooled over the row, and its last lines are
        mean ranks over the rows if there are three or more. None without a number of this measure.
    """
    shown = [block for block in blocks if any(grid.means for grid in block.grids_of(measure))]
    if not shown:
        return None
    objectives = _objectives(shown, measure)
    num_columns = len(objectives) + 3
    body = [r"\toprule", *_heads(objectives)]
    for dataset in dict.fromkeys(block.key.dataset for block in shown):
        title = rf"\multicolumn{{{num_columns}}}{{l}}{{\textit{{{latex_text(name_text(dataset))}}}}} \\"
        body += [r"\midrule", title]
        for block in (block for block in shown if block.key.dataset == dataset):
            for index, grid in enumerate(block.grids_of(measure)):
                label = latex_text(model_text(block.key)) if index == 0 else ""
                direction = _ARROWS[grid.metric.direction]
                cells = _cells(grid, scale_of(grid, colours[block.key]), objectives)
                body.append(" & ".join([label, direction, *cells]) + r" \\")
    body += [*_rank_rows(shown, measure, objectives), r"\bottomrule"]
    incomplete = " *: seeds are missing." if any(block.gaps for block in shown) else ""
    briefs = ", ".join(dict.fromkeys(block.brief.replace("± std ", "") for block in shown))
    caption = (
        f"{measure} ({unit_text(measure)}), test, {briefs}; std: of one cell, pooled over its row. "
        f"Bold: best of the row, underlined: second.{incomplete}"
    )
    return float_to_latex(
        caption=caption,
        label=f"overview-{measure_slug(measure)}",
        columns="ll" + "c" * (num_columns - 2),
        body=body,
        notes=protocol_notes(shown, measure),
        separation="1.5pt",
    )


def _objectives(blocks: Sequence[Block], measure: str) -> list[Objective]:
    """All objectives with a cell in any block, by pair weight and then triplet weight."""
    cells = {key for block in blocks for key, cell in block.grids_of(measure)[0].cells.items() if cell.requested}
    pairs, triplets = (
        in_order((pair for pair, _ in cells), PAIRS),
        in_order((triplet for _, triplet in cells), TRIPLETS),
    )
    return [(pair, triplet) for pair in pairs for triplet in triplets if (pair, triplet) in cells]


def _heads(objectives: Sequence[Objective]) -> list[str]:
    pairs = [pair for pair, _ in objectives]
    spans, rules, start = [], [], 3
    for pair in dict.fromkeys(pairs):
        width = pairs.count(pair)
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{weight_to_latex('P', pair)}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    triplets = [weight_to_latex("T", triplet) for _, triplet in objectives]
    return [f" & & {' & '.join(spans)} & \\\\", "".join(rules), f" & & {' & '.join(triplets)} & std \\\\"]


def _cells(grid: Grid, scale: ColourScale | None, objectives: Sequence[Objective]) -> list[str]:
    texts = []
    for objective in objectives:
        cell = grid.cells.get(objective)
        if cell is None or cell.mean is None:
            texts.append("--")
        else:
            text = f"{cell.mean:.1f}" + ("$^{*}$" if cell.gaps else "")
            texts.append(number_to_latex(text, grid, scale, objective))
    # Weighted by degrees of freedom, so that a cell with few seeds counts for as much as it says.
    spreads = [(cell.std**2, cell.n - 1) for cell in grid.cells.values() if cell.std is not None]
    free = sum(weight for _, weight in spreads)
    pooled = f"{sqrt(fsum(variance * weight for variance, weight in spreads) / free):.1f}" if free else "--"
    return [*texts, pooled]


def _rank_rows(blocks: Sequence[Block], measure: str, objectives: Sequence[Objective]) -> list[str]:
    """A row of mean ranks for each direction; none if too few blocks have every objective."""
    rows = []
    for grid in blocks[0].grids_of(measure):
        ranks = rank_blocks(blocks, grid.metric)
        if ranks is not None:
            names = ["/".join(objective) for objective in objectives]
            texts = [f"{ranks.mean_ranks[name]:.1f}" if name in ranks.mean_ranks else "--" for name in names]
            least = min(map(float, (text for text in texts if text != "--")))
            texts = [rf"\textbf{{{text}}}" if text == f"{least:.1f}" else text for text in texts]
            heads = [f"mean rank ({ranks.num_blocks} blocks)", _ARROWS[grid.metric.direction]]
            rows.append(" & ".join([*heads, *texts, ""]) + r" \\")
    return [r"\midrule", *rows] if rows else []
