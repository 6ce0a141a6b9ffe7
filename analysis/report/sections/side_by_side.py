"""The section that shows stages and sweeps side by side: each objective's means and how they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.blocks import Block, CellSummary
from analysis.report.inputs import Inputs
from analysis.report.parts import Section, TextTable
from analysis.wording import signed
from sweeps.results import MAIN_METRICS, Metric

_NONE = CellSummary(mean=None, std=None, n=0)
"""Where a sweep does not have the objective."""
Column = tuple[str, Block]
"""One block of a sweep, with the sweep's name."""
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
        for block in (block for block in blocks if not block.is_empty):
            key = block.key
            groups.setdefault((key.dataset, key.framework, key.backbone, key.variant), []).append((sweep, block))
    return {key: columns for key, columns in groups.items() if len(columns) > 1}


def side_by_side_section(inputs: Inputs) -> Section | None:
    """Tables of each group; None without groups."""
    groups = columns_of(inputs.sweeps)
    if not groups:
        return None
    tables, warnings = [], []
    for key, columns in groups.items():
        title = f"{' '.join(key[:3])}" + ("" if key[3] == "paper" else f", variant {key[3]}")
        tables += [_table(title, columns, metric) for metric in MAIN_METRICS]
        if len({block.key.data_fingerprint for _, block in columns}) > 1:
            warnings.append(
                f"{key[0]} {key[2]}: the columns were measured on different data (their fingerprints differ); "
                "differences between them are not due to objectives or settings alone."
            )
    paragraph = "Mean ± standard deviation over seeds (ddof = 1); changes are relative to the first column, in points."
    return Section(
        anchor="side-by-side",
        title="Stages and sweeps side by side",
        paragraphs=(paragraph, *warnings),
        tables=tuple(tables),
    )


def uncompared(inputs: Inputs) -> list[str]:
    """A sentence for each other sweep that has nothing in common with this one."""
    shown = {sweep for columns in columns_of(inputs.sweeps).values() for sweep, _ in columns}
    without = [label for label in inputs.others if label not in shown]
    return [f"Sweep {name!r} has no finished block with the same dataset, framework and backbone." for name in without]


def _labels(columns: Sequence[Column]) -> list[str]:
    """What distinguishes the columns: the stage, the sweep, or both; and the grid of a tuned sweep."""
    several = len({sweep for sweep, _ in columns}) > 1
    stages = len({block.key.stage for _, block in columns}) > 1 or not several
    words = (
        (sweep * several, block.key.stage * stages, f"({block.key.grid})" if block.key.grid else "")
        for sweep, block in columns
    )
    return [" ".join(filter(None, own)) for own in words]


def _table(title: str, columns: Sequence[Column], metric: Metric) -> TextTable:
    rows, labels = [], _labels(columns)
    for name in dict.fromkeys(name for _, block in columns for name, cell in block.cells.items() if cell.requested):
        first, *others = (block.grids[metric.key].cells.get(name, _NONE) for _, block in columns)
        texts = [(cell.text(), _change(first, cell)) for cell in others]
        rows.append(("/".join(name), first.text(), *(text for own in texts for text in own)))
    head = ("objective", labels[0], *(word for label in labels[1:] for word in (label, "change")))
    return TextTable(title=f"{title}: {metric.label}", head=head, rows=tuple(rows))


def _change(first: CellSummary, cell: CellSummary) -> str:
    return "--" if first.mean is None or cell.mean is None else signed(cell.mean - first.mean)
