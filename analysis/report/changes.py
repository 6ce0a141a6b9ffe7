"""Blocks side by side, and what changes from the first: stages, sweeps, values of an axis, both grids of a search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from goal_sweep.analysis.blocks import Block, CellSummary, Objective
from goal_sweep.analysis.figures.comparisons import Forest, draw_forest
from goal_sweep.analysis.report.parts import Picture, TextTable
from goal_sweep.analysis.statistics.gains import BlockPair, Gain
from goal_sweep.analysis.wording import count_text, signed
from goal_sweep.sweeps.results import Metric

JUDGED_NOTE = (
    "Standard deviations are over seeds (ddof = 1). Changes are from the first column, in points; their intervals are "
    "of runs with the same seed, by the one rule of this report, corrected for the objectives of the block."
)
PLAIN_NOTE = "Mean ± standard deviation over seeds (ddof = 1), and the change from the first column in points."
_NONE = CellSummary(mean=None, std=None, n=0)
"""Where a block does not have the objective."""


def change_table(
    title: str,
    columns: Sequence[tuple[str, Block]],
    metric: Metric,
    judged: Sequence[Mapping[Objective, Gain]] = (),
    *,
    without: Collection[Objective] = (),
    note: str = "",
    label: str = "",
) -> TextTable:
    """A row for each objective: its mean in each block and, from the second on, the change from the first.

    Args:
        title: the table's.
        columns: what each block is called.
        metric: the metric.
        judged: the changes to the second, third, ... block; empty where they are not judged.
        without: objectives that have no row.
        note: see `TextTable`.
        label: see `TextTable`.
    """
    rows, (first, *others) = [], (block for _, block in columns)
    names = dict.fromkeys(name for _, block in columns for name, cell in block.cells.items() if cell.requested)
    for name in (name for name in names if name not in without):
        cells = [block.grids[metric.key].cells.get(name, _NONE) for block in (first, *others)]
        changes = [own.get(name) for own in judged] or [None] * len(others)
        texts = [(cell.text(), _change(cells[0], cell, gain)) for cell, gain in zip(cells[1:], changes, strict=True)]
        rows.append(("/".join(name), cells[0].text(), *(text for own in texts for text in own)))
    if label:  # a table of a paper, which stands alone
        same = "; =: the same training" if any("=" in row for row in rows) else ""
        seeds = first.brief.removesuffix(f", {first.key.grid} grid")
        note = f"Changes with simultaneous 95 % intervals; {seeds}{same}. {note}".strip()
    heads = [name for name, _ in columns]
    head = ("objective", heads[0], *(word for name in heads[1:] for word in (name, "change")))
    return TextTable(title=title, head=head, rows=tuple(rows), note=note, label=label)


def _change(first: CellSummary, cell: CellSummary, gain: Gain | None) -> str:
    if first.mean is None or cell.mean is None:
        return "--"
    if gain is None or gain.difference is None:
        return signed(cell.mean - first.mean)
    return "=" if gain.same else gain.difference.text


def change_picture(
    stem: str, title: str, what: str, panels: Iterable[tuple[str, Metric, BlockPair, Mapping[Objective, Gain]]]
) -> Picture:
    """A forest plot of judged changes.

    Args:
        stem: see `Picture.stem`.
        title: the figure's.
        what: what a change is, such as ``tuned minus default``.
        panels: the title and the metric of each panel, between which blocks the changes are, and these.
    """
    forests = [
        Forest(
            title=of_what,
            metric=metric,
            differences={key: None if gain.same else gain.difference for key, gain in gains.items()},
            beyond_seeds=pair.beyond_seeds(metric),
        )
        for of_what, metric, pair, gains in panels
    ]
    return Picture(stem=stem, title=title, draw=draw_forest, arguments=(forests, what))


def changes_text(gains: Iterable[Gain]) -> str:
    """How many means are higher and lower by more than noise; empty where nothing is in both or could change."""
    moved = [(gain, gain.difference) for gain in gains if gain.difference is not None and not gain.same]
    if not moved:
        return ""
    low, high = (signed(end(change.estimate for _, change in moved)) for end in (min, max))
    size = f"all: {low} points" if low == high else f"all: {low} to {high} points"
    judged = [change.verdict for _, change in moved if change.p is not None]
    if not judged:
        several = any(min(gain.default.n, gain.tuned.n) > 1 for gain, _ in moved)
        why = "seeds agree exactly" if several else "no objective has two seeds in both"
        return f"none can be judged, because {why} ({size})"
    counts = f"{judged.count('better')} higher and {judged.count('worse')} lower"
    return f"of {count_text(len(judged), 'mean')}, {counts} by more than noise ({size})"
