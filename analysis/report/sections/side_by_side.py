"""The section that shows stages and sweeps side by side: each objective's means and how they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goal_sweep.analysis.blocks import Block
from goal_sweep.analysis.report.changes import PLAIN_NOTE, change_table
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section
from goal_sweep.sweeps.results import MAIN_METRICS

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
    if not tables:
        return None
    return Section(
        anchor="side-by-side",
        title="Stages and sweeps side by side",
        paragraphs=(PLAIN_NOTE, *warnings),
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
