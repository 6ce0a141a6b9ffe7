"""The sections that show blocks side by side: stages and sweeps, the values of an axis, both grids of a search."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from goal_sweep.analysis.blocks import BlockResults, CellSummary, Objective
from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.ablations import Ablation, ablations
from goal_sweep.analysis.statistics.aggregation import same_but_grid
from goal_sweep.analysis.wording import objectives_text, signed
from goal_sweep.sweeps.results import DEFAULT, MAIN_METRICS, TUNED, Metric

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


def side_by_side_section(inputs: Inputs) -> Section | None:
    """The stages and sweeps of each dataset, framework, backbone and variant; None where each has one."""
    tables, warnings = [], []
    for columns in columns_of(inputs.sweeps).values():
        model = columns[0][1].key
        title = model.model_title + (f", variant {model.own_variant}" if model.own_variant else "")
        named = list(zip(_labels(columns), (block for _, block in columns), strict=True))
        tables += [change_table(f"{metric.title}, {title}", named, metric) for metric in MAIN_METRICS]
        if len({block.key.data_fingerprint for _, block in columns}) > 1:
            warnings.append(
                f"{model.model_title}: the columns were measured on different data (their fingerprints differ); "
                "differences between them are not due to objectives or settings alone."
            )
    title = "Stages and sweeps side by side"
    said = (_NOTE, *warnings)
    return Section(anchor="side-by-side", title=title, paragraphs=said, tables=tuple(tables)) if tables else None


def columns_of(sweeps: Mapping[str, Sequence[BlockResults]]) -> dict[tuple[str, ...], list[Column]]:
    """The blocks of several sweeps, by dataset, framework, backbone and variant: groups of two or more.

    Columns are by sweep, then stage, both in the given order. Blocks without a number are omitted.
    """
    groups: dict[tuple[str, ...], list[Column]] = {}
    for sweep, blocks in sweeps.items():
        for block in (block for block in blocks if not block.is_empty):
            key = block.key
            groups.setdefault((key.dataset, key.framework, key.backbone, key.variant), []).append((sweep, block))
    return {key: columns for key, columns in groups.items() if len(columns) > 1}


def _labels(columns: Sequence[Column]) -> list[str]:
    """What distinguishes the columns: the stage, the sweep, or both; and the grid of a tuned sweep."""
    several = len({sweep for sweep, _ in columns}) > 1
    stages = len({block.key.stage for _, block in columns}) > 1 or not several
    words = (
        (sweep * several, block.key.stage * stages, f"({block.key.grid})" if block.key.grid else "")
        for sweep, block in columns
    )
    return [" ".join(filter(None, own)) for own in words]


def uncompared(inputs: Inputs) -> list[str]:
    """A sentence for each other sweep that has nothing in common with this one."""
    shown = {sweep for columns in columns_of(inputs.sweeps).values() for sweep, _ in columns}
    without = [label for label in inputs.others if label not in shown]
    return [f"Sweep {name!r} has no finished block with the same dataset, framework and backbone." for name in without]


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
        tables=(replace(best, title="The highest mean at each point: R@1"), *tables),
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
