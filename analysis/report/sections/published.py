"""The section that compares a sweep with the paper: orders, cell by cell, and its own check of gradients."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from goal_sweep.analysis.blocks import Block, BlockKey
from goal_sweep.analysis.published.comparison import (
    GridComparison,
    compare_blocks,
    order_agreement,
    orders_by_chance,
    verdict_of,
)
from goal_sweep.analysis.published.numbers import NUM_RUNS, gradient_numbers, published_blocks, published_key
from goal_sweep.analysis.report.changes import change_table
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.wording import mean_text, signed
from goal_sweep.sweeps.results import BASELINE, METRICS, RSUM, measure_slug

_NOTHING = "The paper has no finished block of this sweep, so only the order of the objectives is compared."
_VERDICTS = ("equal", "within noise", "higher", "lower", "not judged")
_CELL_NOTE = (
    f"Equal: as printed. Else the simultaneous 95 % interval of the difference decides, over the cells of the grid, "
    f"for other seeds alone and without pairing, because the paper prints no single run of its {NUM_RUNS}."
)
_ORDER_NOTE = (
    "Orders: Spearman's rank correlation of this sweep's means with each printed grid, and their mean. Of the printed "
    "order with its rows and columns permuted, 95 % of these means lie between {:+.2f} and {:+.2f}. No test is "
    "made: another dataset, model or number of epochs may give another order."
)
_VALIDATED = {"resnet152_ft": ("resnet152", "finetune"), "butd": ("butd", "train"), "wsl": ("wsl", "train")}
"""The paper's names of these rows: backbone and stage."""
# The order of the columns in the paper's tables: one direction after the other.
_RECALLS = sorted((metric for metric in METRICS.values() if metric is not RSUM), key=lambda m: m.direction)


def published_section(inputs: Inputs) -> Section:
    """A sweep compared with the paper."""
    blocks, printed = inputs.as_printed, published_blocks()
    comparisons = compare_blocks(blocks, printed)
    models = groupby(inputs.blocks, key=lambda block: replace(block.key, point="", variant="paper", grid=""))
    orders = [table for key, points in models if (table := _order_table(key, list(points), printed)).rows]
    said = [_ORDER_NOTE.format(*orders_by_chance(printed))] if orders else []
    if comparisons:
        said.append(f"Of {sum(len(own.cells) for own in comparisons)} cells {_counts(comparisons)}. {_CELL_NOTE}")
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        warnings=() if comparisons else (_NOTHING,),
        paragraphs=tuple(said),
        tables=(*orders, *map(_comparison_table, comparisons), gradient_validation(blocks)),
    )


def _counts(comparisons: Iterable[GridComparison]) -> str:
    """For example "3 equal, 11 within noise, 1 higher"."""
    found = [verdict_of(cell) for own in comparisons for cell in own.cells.values()]
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in found)


def _comparison_table(own: GridComparison) -> TextTable:
    """A grid of the paper and the sweep, and the differences."""
    title, columns = f"{own.ours.key.title}: {own.metric.title}", (("paper", own.theirs), ("this sweep", own.ours))
    mean = fmean(cell.difference.estimate for cell in own.cells.values() if cell.difference is not None)
    note = f"{_counts([own])}; mean difference {signed(mean)}."
    return change_table(title, columns, own.metric, [own.cells], note=note)


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
    )


def _label(key: BlockKey) -> str:
    return ", ".join(filter(None, (key.point, f"{key.grid} grid" if key.grid else ""))) or "this sweep"


def gradient_validation(blocks: Sequence[Block] = ()) -> TextTable:
    """The triplet loss as published, the same objective as a gradient in the paper, and con/con of this sweep."""
    rows = []
    for (dataset, framework, backbone), part in gradient_numbers().groupby(["dataset", "framework", "backbone"]):
        for implementation, lines in part.groupby("implementation", sort=False):
            by_direction = {str(line["direction"]): line for line in lines.to_dict("records")}
            cells = [_printed(by_direction[metric.direction], measure_slug(metric.name)) for metric in _RECALLS]
            rows.append((f"{framework} {backbone}", f"{implementation} (paper)", *cells))
        key = (str(dataset), str(framework), *_VALIDATED[str(backbone)])
        own = (block for block in blocks if published_key(block.key) == key and not block.is_empty)
        for block in (block for block in own if BASELINE in block.cells):
            cells = [block.grids[metric.key].cells[BASELINE].text() for metric in _RECALLS]
            rows.append((f"{framework} {block.key.backbone}", "gradient (this sweep)", *cells))
    head = ("model", "implementation", *(metric.label for metric in _RECALLS))
    note = "COCO 5K test recalls in %; mean ± standard deviation where runs were repeated (3 in the paper)."
    label = "gradient-validation"
    return TextTable(title="Gradient against loss", head=head, rows=tuple(rows), note=note, words=2, label=label)


def _printed(line: Mapping[Hashable, str], measure: str) -> str:
    mean, std = line[f"{measure}_mean"], line[f"{measure}_std"]
    return mean_text(float(mean), float(std) if std else None, always_std=False) if mean else "--"
