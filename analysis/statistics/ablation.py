"""One axis at a time: the blocks of a sweep that differ in one setting, all others at their first value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import run_schema as schema
from analysis.axes import VARIANT, Axis, axes_of, first_points
from analysis.blocks import Block, BlockKey, CellSummary, Objective, point_values
from analysis.run_schema import Metric

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """The values of one axis in one model and stage."""

    axis: Axis
    blocks: tuple[Block, ...]
    """One for each value, in their order."""
    others: str
    """The values of the other axes, such as ``lr 0.0002``; empty without others."""
    untouched: frozenset[Objective]
    """The objectives that do not depend on the axis: each has the same trainings at every value."""

    @property
    def key(self) -> BlockKey:
        """The block of the first value."""
        return self.blocks[0].key

    @property
    def title(self) -> str:
        """The axis, and the model and stage, for a reader."""
        plain = replace(self.key, point="", variant="paper" if self.axis.name == VARIANT else self.key.variant)
        return f"{self.axis.name}, {plain.title}"

    def cells(self, metric: Metric) -> dict[Objective, list[CellSummary]]:
        """The cell of each objective of the sweep at each value."""
        grids = [block.grids[metric.key].cells for block in self.blocks]
        return {name: [grid[name] for grid in grids] for name, cell in grids[0].items() if cell.requested}


def ablations(sweep: SweepRuns, blocks: Iterable[Block]) -> tuple[Ablation, ...]:
    """The ablations of a sweep: for each model, stage and axis that touches it one; those without a number are omitted.

    Args:
        sweep: the sweep and its runs.
        blocks: all its blocks.
    """
    by_key = {block.key: block for block in blocks}
    first = first_points(sweep.axes, sweep.stages)
    found = []
    for key in by_key:
        if key.point != first[key.stage]:
            continue
        until = sweep.stages[: sweep.stages.index(key.stage) + 1]
        for axis in axes_of(sweep.axes, until):
            along = tuple(by_key[_at(key, axis.name, value)] for value in axis.values)
            others = {name: value for name, value in point_values(key.point).items() if name != axis.name}
            if not all(block.is_empty for block in along):
                found.append(
                    Ablation(
                        axis=axis,
                        blocks=along,
                        others=" ".join(f"{name} {value}" for name, value in others.items()),
                        untouched=_untouched(sweep, axis, key.stage),
                    )
                )
    return tuple(found)


def _at(key: BlockKey, name: str, value: str) -> BlockKey:
    """The key of the block with another value of one axis."""
    values = point_values(key.point) | {name: value}
    point = " ".join(f"{axis} {at}" for axis, at in values.items())
    return replace(key, point=point, variant=values.get(VARIANT, key.variant))


def _untouched(sweep: SweepRuns, axis: Axis, stage: str) -> frozenset[Objective]:
    runs = sweep.runs[sweep.runs["requested"] & (sweep.runs["stage"] == stage)]
    return frozenset(
        (str(row["pair"]), str(row["triplet"]))
        for row in runs.to_dict("records")
        if point_values(row["point"]).get(axis.name) == schema.ANY_VALUE
    )


def ablation_frame(found: Sequence[Ablation]) -> pd.DataFrame:
    """A row for each ablation, value, metric and objective, not rounded.

    Columns: those of the block's model and stage, ``axis``, ``value``, ``others`` (the values of the other axes),
    ``direction``, ``metric``, ``pair``, ``triplet``, ``depends`` (whether the objective depends on the axis), ``mean``,
    ``std`` (ddof=1) and ``n``.
    """
    rows: list[dict[str, Any]] = []
    for one in found:
        key = one.key
        own = {"dataset": key.dataset, "framework": key.framework, "backbone": key.backbone, "stage": key.stage}
        for metric in schema.METRICS.values():
            for (pair, triplet), cells in one.cells(metric).items():
                for value, cell in zip(one.axis.values, cells, strict=True):
                    row = own | {"axis": one.axis.name, "value": value, "others": one.others}
                    row |= {"direction": metric.direction, "metric": metric.name, "pair": pair, "triplet": triplet}
                    numbers = {"depends": (pair, triplet) not in one.untouched}
                    rows.append(row | numbers | {"mean": cell.mean, "std": cell.std, "n": cell.n})
    return pd.DataFrame(rows)
