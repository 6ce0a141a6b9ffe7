"""The sections that show blocks side by side: stages, the values of an axis, both grids of a search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from goal_sweep.analysis.blocks import BlockKey, BlockResults, CellSummary, Objective
from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.ablations import Ablation, ablations
from goal_sweep.analysis.statistics.aggregation import same_but_grid
from goal_sweep.analysis.wording import objectives_text, signed
from goal_sweep.goal_core.evaluation.metrics import MAIN_METRICS, Metric
from goal_sweep.sweeps.results import DEFAULT, TUNED

_NOTE = "Mean ± standard deviation over seeds (ddof = 1), and the change from the first column in points, not tested."
_AXES_NOTE = (
    "Each table varies one setting and holds the others at their first value. A value chosen by these numbers is "
    "chosen on the test split: choose by val (val/rsum in runs.csv), and report its test numbers."
)
_NONE = CellSummary(mean=None, std=None, n=0)
"""Where a block does not have the objective."""
Column = tuple[str, BlockResults]
"""A block and what it is called."""


def change_table(
    title: str,
    columns: Sequence[Column],
    metric: Metric,
    without: Collection[Objective] = (),
    note: str = "",
) -> TextTable:
    """A row for each objective: its mean in each block and, from the second on, the change from the first."""
    blocks = [block for _, block in columns]
    rows = []
    names = dict.fromkeys(name for block in blocks for name, cell in block.cells.items() if cell.requested)
    for name in (name for name in names if name not in without):
        first, *others = (block.grids[metric.key].cells.get(name, _NONE) for block in blocks)
        rows.append(("/".join(name), first.text(), *(text for cell in others for text in _change(first, cell))))
    heads = [name for name, _ in columns]
    head = ("objective", heads[0], *(word for name in heads[1:] for word in (name, "change")))
    return TextTable(title=title, head=head, rows=tuple(rows), note=note)


def _change(first: CellSummary, cell: CellSummary) -> tuple[str, str]:
    if first.mean is None or cell.mean is None:
        return cell.text(), "--"
    return cell.text(), signed(cell.mean - first.mean)


def stages_section(inputs: Inputs) -> Section | None:
    """The stages of each model side by side; None where each has one with a number."""
    groups: dict[BlockKey, list[BlockResults]] = {}
    for block in (block for block in inputs.first if not block.is_empty):
        groups.setdefault(replace(block.key, stage="", configuration=""), []).append(block)
    tables = [
        change_table(f"{metric.title}, {blocks[0].key.model_title}", [(b.key.stage, b) for b in blocks], metric)
        for blocks in groups.values()
        for metric in MAIN_METRICS
        if len(blocks) > 1
    ]
    title = "Stages side by side"
    return Section(anchor="stages", title=title, paragraphs=(_NOTE,), tables=tuple(tables)) if tables else None


def ablation_section(inputs: Inputs) -> Section | None:
    """A table for each axis and main metric; None for a sweep without axes or without a result."""
    found = ablations(inputs.results, inputs.blocks)
    if not found:
        return None
    best = answer_table(answers_of(block for block in inputs.blocks if not block.key.grid), "R@1")
    tables = [table for own in found for metric in MAIN_METRICS if (table := _ablation_table(own, metric)).rows]
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=(_AXES_NOTE, _NOTE),
        tables=(replace(best, title="The highest mean at each configuration: R@1"), *tables),
    )


def _ablation_table(own: Ablation, metric: Metric) -> TextTable:
    same = objectives_text(name for name in own.blocks[0].cells if name in own.untouched)
    held = f"Held fixed: {own.others}. " if own.others else ""
    without = f"{same} {'do' if ',' in same else 'does'} not depend on {own.axis}." if same else ""
    return change_table(
        f"{metric.title} by {own.title}",
        [(f"{own.axis} {value}", block) for value, block in zip(own.values, own.blocks, strict=True)],
        metric,
        own.untouched,
        f"{held}{without}".strip(),
    )


def tuned_section(inputs: Inputs) -> Section | None:
    """Each objective in the default and in the tuned grid; None unless both grids of a block have a number."""
    blocks = [block for block in inputs.answered if not block.is_empty]
    tables = [
        change_table(
            f"{metric.title}, {default.key.title.removesuffix(f', {DEFAULT} grid')}",
            ((DEFAULT, default), (TUNED, tuned)),
            metric,
        )
        for default in blocks
        for tuned in blocks
        if (default.key.grid, tuned.key.grid) == (DEFAULT, TUNED) and same_but_grid(default.key, tuned.key)
        for metric in MAIN_METRICS
    ]
    title = "Default against tuned"
    return Section(anchor="tuned", title=title, paragraphs=(_NOTE,), tables=tuple(tables)) if tables else None
