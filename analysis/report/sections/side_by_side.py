"""The section that shows stages and sweeps side by side: each objective's means and how they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from analysis.blocks import Block, CellSummary, Objective
from analysis.figures.lines import draw_side_by_side
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.wording import signed
from sweeps.results import MAIN_METRICS, Metric

_NONE = CellSummary(mean=None, std=None, n=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One block of one sweep, as a column next to others."""

    sweep: str
    block: Block

    def cell(self, metric: Metric, objective: Objective) -> CellSummary:
        """An objective's cell; an empty one when its sweep does not have the objective."""
        return self.block.grids[metric.key].cells.get(objective, _NONE)


Groups = Mapping[tuple[str, str, str, str], Sequence[Column]]
"""The columns shown side by side, by ``(dataset, framework, backbone, variant)``."""


def columns_of(sweeps: Mapping[str, Sequence[Block]]) -> Groups:
    """Groups of blocks with the same dataset, framework, backbone and variant.

    Args:
        sweeps: a sweep's name to its blocks; the others are compared with the first.

    Returns:
        Columns by sweep, then stage, both in the given order; only groups of two or more. Blocks without a number are
        omitted.
    """
    groups: dict[tuple[str, str, str, str], list[Column]] = {}
    for sweep, blocks in sweeps.items():
        for block in blocks:
            if not block.is_empty:
                key = block.key
                group = groups.setdefault((key.dataset, key.framework, key.backbone, key.variant), [])
                group.append(Column(sweep=sweep, block=block))
    return {key: columns for key, columns in groups.items() if len(columns) > 1}


def side_by_side_section(inputs: Inputs) -> Section | None:
    """Tables and a figure for each group; None without groups."""
    groups = columns_of(inputs.sweeps)
    if not groups:
        return None
    figures, tables = [], []
    for number, (key, columns) in enumerate(groups.items(), start=1):
        title = f"{' '.join(key[:3])}" + ("" if key[3] == "paper" else f", variant {key[3]}")
        means = {
            metric: {name: [column.cell(metric, name).mean for column in columns] for name in _objectives(columns)}
            for metric in MAIN_METRICS
        }
        figures.append(
            Picture(
                stem=f"side-by-side/{number}-{'-'.join(word.replace('/', '_') for word in key[:3])}",
                title=f"Side by side: {title}",
                draw=draw_side_by_side,
                arguments=(title, _labels(columns), means),
            )
        )
        tables += [_table(title, columns, metric) for metric in MAIN_METRICS]
    paragraph = "Mean ± standard deviation over seeds (ddof = 1); changes are relative to the first column, in points."
    return Section(
        anchor="side-by-side",
        title="Stages and sweeps side by side",
        paragraphs=(paragraph, *_warnings(groups)),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def uncompared(inputs: Inputs) -> list[str]:
    """A sentence for each other sweep that has nothing in common with this one."""
    shown = {column.sweep for columns in columns_of(inputs.sweeps).values() for column in columns}
    without = [label for label in inputs.others if label not in shown]
    return [f"Sweep {name!r} has no finished block with the same dataset, framework and backbone." for name in without]


def _objectives(columns: Sequence[Column]) -> list[Objective]:
    cells = [column.block.cells for column in columns]
    return list(dict.fromkeys(key for own in cells for key, cell in own.items() if cell.requested))


def _labels(columns: Sequence[Column]) -> list[str]:
    """What distinguishes the columns: the stage, the sweep, or both; and the grid of a tuned sweep."""
    several = len({column.sweep for column in columns}) > 1
    stages = len({column.block.key.stage for column in columns}) > 1 or not several
    return [" ".join(filter(None, _words(column, several=several, stages=stages))) for column in columns]


def _words(column: Column, *, several: bool, stages: bool) -> tuple[str, str, str]:
    key = column.block.key
    return column.sweep if several else "", key.stage if stages else "", f"({key.grid})" if key.grid else ""


def _table(title: str, columns: Sequence[Column], metric: Metric) -> TextTable:
    labels, rows = _labels(columns), []
    for objective in _objectives(columns):
        first, *others = (column.cell(metric, objective) for column in columns)
        changes = map(partial(_change, first), others)
        texts = ((cell.text(), "--" if c is None else signed(c)) for cell, c in zip(others, changes, strict=True))
        rows.append(("/".join(objective), first.text(), *(text for own in texts for text in own)))
    head = ("objective", labels[0], *(word for label in labels[1:] for word in (label, "change")))
    return TextTable(title=f"{title}: {metric.label}", head=head, rows=tuple(rows))


def _change(first: CellSummary, cell: CellSummary) -> float | None:
    return None if first.mean is None or cell.mean is None else cell.mean - first.mean


def _warnings(groups: Groups) -> list[str]:
    """A sentence for each group whose differences may have other causes than objectives and settings."""
    return [
        f"{key[0]} {key[2]}: the columns were measured on different data (their fingerprints differ); differences "
        "between them are not due to objectives or settings alone."
        for key, columns in groups.items()
        if len({column.block.key.data_fingerprint for column in columns}) > 1
    ]
