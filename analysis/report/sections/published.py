"""The section that compares a sweep with the paper: orders, and cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from goal_sweep.analysis.blocks import BlockKey, BlockResults
from goal_sweep.analysis.published.comparison import GridComparison, compare_blocks, order_agreement
from goal_sweep.analysis.published.numbers import NUM_RUNS, published_blocks
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.wording import p_equation, signed

_NOTHING = "The paper has no finished block of this sweep, so only the order of the objectives is compared."
_VERDICTS = ("equal", "not significant", "higher", "lower", "not tested")
_CELL_NOTE = (
    "Equal: as printed. Else Welch's t-test on means and deviations decides at 5 %, with Holm's correction for the "
    f"cells of the grid. It is for other seeds alone and not paired: the paper prints no single run of its {NUM_RUNS}."
)
_ORDER_NOTE = (
    "Orders: Spearman's rank correlation of this sweep's means with each printed grid, and their mean. No test is "
    "made: another dataset, model or number of epochs may give another order."
)


def published_section(inputs: Inputs) -> Section:
    """A sweep compared with the paper."""
    blocks, printed = inputs.as_printed, published_blocks()
    comparisons = compare_blocks(blocks, printed)
    models = groupby(inputs.blocks, key=lambda block: replace(block.key, configuration="", variant="paper", grid=""))
    orders = [
        table for key, configurations in models if (table := _order_table(key, list(configurations), printed)).rows
    ]
    said = [_ORDER_NOTE] if orders else []
    if comparisons:
        said.append(f"Of {sum(len(own.cells) for own in comparisons)} cells {_counts(comparisons)}. {_CELL_NOTE}")
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        warnings=() if comparisons else (_NOTHING,),
        paragraphs=tuple(said),
        tables=(*orders, *map(_comparison_table, comparisons)),
    )


def _counts(comparisons: Iterable[GridComparison]) -> str:
    """For example "3 equal, 11 not significant, 1 higher"."""
    found = [cell.verdict for own in comparisons for cell in own.cells.values()]
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in found)


def _comparison_table(own: GridComparison) -> TextTable:
    """A grid of the paper and the sweep, and the differences."""
    rows = [
        ("/".join(name), cell.theirs.text(), cell.ours.text(), signed(cell.change), p_equation(cell.p), cell.verdict)
        for name, cell in own.cells.items()
    ]
    mean = fmean(cell.change for cell in own.cells.values())
    return TextTable(
        title=f"{own.ours.key.title}: {own.metric.title}",
        head=("objective", "paper", "this sweep", "change", "p", "verdict"),
        rows=tuple(rows),
        note=f"{_counts([own])}; mean change {signed(mean)}.",
    )


def _order_table(model: BlockKey, configurations: Sequence[BlockResults], printed: Sequence[BlockResults]) -> TextTable:
    """The rank correlations of a model's configurations with the printed grids, the nearest to the paper first."""
    found = [(block, order) for block in configurations if (order := order_agreement(block, printed))]
    found.sort(key=lambda own: -fmean(own[1].values()))
    rows = [("mean", *(f"{fmean(order.values()):+z.2f}" for _, order in found))] if found else []
    for key, metric in found[0][1] if found else ():
        name = f"{key.title}: {metric.title}"
        rows.append((name, *(f"{order[key, metric]:+z.2f}" for _, order in found)))
    return TextTable(
        title=f"Order of the objectives as in the paper: {model.title}",
        head=("printed grid", *(_label(block.key) for block, _ in found)),
        rows=tuple(rows),
    )


def _label(key: BlockKey) -> str:
    return ", ".join(filter(None, (key.configuration, f"{key.grid} grid" if key.grid else ""))) or "this sweep"
