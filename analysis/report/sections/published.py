"""The section that compares a sweep with the paper: orders, verdicts on cells, and cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from analysis.blocks import Block, BlockKey
from analysis.published.comparison import VERDICTS, GridComparison, compare_blocks, order_agreement
from analysis.published.numbers import NUM_RUNS, published_blocks
from analysis.report.inputs import Inputs
from analysis.report.parts import Section, TextTable
from analysis.report.published_tables import gradient_validation
from analysis.wording import mean_text, signed

_NOTHING = "The paper has no finished block of this sweep, so only the order of the objectives is compared."
_ORDER_NOTE = (
    "Spearman's rank correlation of this sweep's means with each printed grid; the first row is their mean. No test "
    "is made: another dataset, model or number of epochs may give another order."
)


def published_section(inputs: Inputs) -> Section:
    """A sweep compared with the paper."""
    blocks, printed = inputs.as_printed, published_blocks()
    comparisons = compare_blocks(blocks, printed)
    models = groupby(inputs.blocks, key=lambda block: replace(block.key, point="", variant="paper", grid=""))
    orders = [table for key, points in models if (table := _order_table(key, list(points), printed)).rows]
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        warnings=() if comparisons else (_NOTHING,),
        paragraphs=(_verdict_sentence(comparisons),) if comparisons else (),
        tables=(
            *orders,
            *([_verdict_table(comparisons)] if comparisons else []),
            *map(_comparison_table, comparisons),
            gradient_validation(blocks),
        ),
    )


def _verdict_sentence(comparisons: Sequence[GridComparison]) -> str:
    """For example "Of 15 cells 3 equal, 11 within noise, 1 higher."."""
    counts = {verdict: sum(own.count(verdict) for own in comparisons) for verdict in VERDICTS}
    found = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    meanings = "; ".join(f"{verdict}: {meaning}" for verdict, meaning in VERDICTS.items())
    return f"Of {sum(counts.values())} cells {found}. The first of these applies: {meanings}."


def _verdict_table(comparisons: Sequence[GridComparison]) -> TextTable:
    """A row for each block and metric: how many cells have which verdict, and the rank correlation."""
    rows = [
        (
            comparison.block.key.title,
            comparison.metric.label,
            *(str(comparison.count(verdict)) for verdict in VERDICTS),
            signed(fmean(cell.difference for cell in comparison.cells.values())),
            "--" if comparison.spearman is None else f"{comparison.spearman:+z.2f}",
        )
        for comparison in comparisons
    ]
    note = "Numbers of cells. -- : fewer than three cells, or equal means on a side."
    head = ("block", "metric", *VERDICTS, "mean difference", "Spearman")
    return TextTable(title="Verdicts", head=head, rows=tuple(rows), note=note, words=2)


def _comparison_table(comparison: GridComparison) -> TextTable:
    """A grid of the sweep and the paper: both means, their difference, and the verdict."""
    rows = [
        (
            "/".join(objective),
            *(mean_text(side.mean or 0.0, side.std) for side in (cell.ours, cell.theirs)),
            signed(cell.difference),
            str(cell.ours.n),
            cell.verdict,
        )
        for objective, cell in comparison.cells.items()
    ]
    return TextTable(
        title=f"{comparison.block.key.title}: {comparison.metric.title}",
        head=("objective", "ours", "paper", "difference", "n (ours)", "verdict"),
        rows=tuple(rows),
        note=f"{NUM_RUNS} runs in the paper.",
    )


def _order_table(model: BlockKey, points: Sequence[Block], printed: Sequence[Block]) -> TextTable:
    """The rank correlations of a model's points with the printed grids, the nearest to the paper first."""
    found = [(block, order) for block in points if (order := order_agreement(block, printed))]
    found.sort(key=lambda own: -fmean(own[1].values()))
    rows = [("mean", *(f"{fmean(order.values()):+z.2f}" for _, order in found))] if found else []
    for key, metric in found[0][1] if found else ():
        name = f"{key.title}: {metric.title}"
        rows.append((name, *(f"{order[key, metric]:+z.2f}" for _, order in found)))
    return TextTable(
        title=f"Order of the objectives as in the paper: {model.title}",
        head=("printed grid", *(_label(block.key) for block, _ in found)),
        rows=tuple(rows),
        note=_ORDER_NOTE,
    )


def _label(key: BlockKey) -> str:
    return ", ".join(filter(None, (key.point, f"{key.grid} grid" if key.grid else ""))) or "all"
