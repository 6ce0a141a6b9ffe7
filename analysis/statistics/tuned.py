"""The default against the tuned grid of a block: the gain of each objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.blocks import Block, CellSummary, Difference, Objective
from analysis.run_schema import GRID_DEFAULT, GRID_TUNED, Metric
from analysis.statistics.aggregation import counted, of_block
from analysis.statistics.grids import chose_default, same_but_grid
from analysis.statistics.spread import judge

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockPair:
    """The two grids of a block."""

    default: Block
    tuned: Block

    @property
    def title(self) -> str:
        """The block's name without a grid."""
        return self.default.key.title.removesuffix(f", {GRID_DEFAULT} grid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What tuning changed for one objective, by one metric of the test split, in points."""

    default: CellSummary
    tuned: CellSummary
    same: bool
    """Whether the choice was the default, so that both are one training and the gain is 0 by definition."""
    spread: float | None
    """Standard deviation (ddof=1) over seeds of tuned minus default; None with fewer than two pairs."""
    difference: Difference | None
    """Tuned minus default, paired by seed, corrected for the objectives of the block; None if a side has no value."""


def block_pairs(blocks: Iterable[Block]) -> tuple[BlockPair, ...]:
    """The default and the tuned grid of each block, where both have a number."""
    known = [block for block in blocks if not block.is_empty]
    return tuple(
        BlockPair(default=default, tuned=tuned)
        for default in known
        for tuned in known
        if (default.key.grid, tuned.key.grid) == (GRID_DEFAULT, GRID_TUNED) and same_but_grid(default.key, tuned.key)
    )


def gains(sweep: SweepRuns, pair: BlockPair, metric: Metric) -> dict[Objective, Gain]:
    """The gain of each objective of a block that has a value in either grid.

    Tuned and default runs of a seed are paired, the noise of all cells of both grids is pooled, and the intervals hold
    together for all objectives: the rule of `analysis.statistics.compare` for these differences.
    """
    default, tuned = (values_of(sweep, block, metric) for block in (pair.default, pair.tuned))
    cells = {grid: block.grids[metric.key].cells for grid, block in ((0, pair.default), (1, pair.tuned))}
    found = _differences(sweep, pair, default, tuned)
    return {
        key: Gain(
            default=cell,
            tuned=cells[1][key],
            same=is_same(sweep, pair, key),
            spread=_spread(default, tuned, key),
            difference=found.get(key),
        )
        for key, cell in cells[0].items()
        if cell.mean is not None or cells[1][key].mean is not None
    }


def values_of(sweep: SweepRuns, block: Block, metric: Metric) -> pd.DataFrame:
    """The counted runs of a block by one test metric: a row for each seed, a column for each objective."""
    runs = of_block(counted(sweep), block.key)
    return runs.pivot(index="seed", columns=["pair", "triplet"], values=metric.test).astype(float)


def in_both(default: pd.DataFrame, tuned: pd.DataFrame) -> list[Objective]:
    """The objectives with a column in both frames, in the order of the first."""
    names = [[(str(name[0]), str(name[1])) for name in frame.columns] for frame in (default, tuned)]
    return [name for name in names[0] if name in names[1]]


def is_same(sweep: SweepRuns, pair: BlockPair, key: Objective) -> bool:
    """Whether the choice of an objective was the default, so that both grids have the same trainings of it."""
    return chose_default(sweep.tuning, pair.tuned.key, "/".join(key))


def _spread(default: pd.DataFrame, tuned: pd.DataFrame, key: Objective) -> float | None:
    if key not in default.columns or key not in tuned.columns:
        return None
    changes = (tuned[key] - default[key]).dropna()
    return float(changes.std(ddof=1)) if len(changes) > 1 else None


def _differences(
    sweep: SweepRuns, pair: BlockPair, default: pd.DataFrame, tuned: pd.DataFrame
) -> dict[Objective, Difference]:
    both = in_both(default, tuned)
    same = [key for key in both if is_same(sweep, pair, key)]
    moved = [key for key in both if key not in same]
    found = {key: Difference(estimate=0.0, low=0.0, high=0.0, p=1.0) for key in same}
    if not moved:
        return found
    other = tuned.drop(columns=same)
    values = pd.concat([default, other], axis=1, keys=[GRID_DEFAULT, GRID_TUNED]).to_numpy(float)
    columns = [*((GRID_DEFAULT, *key) for key in default.columns), *((GRID_TUNED, *key) for key in other.columns)]
    contrasts = np.zeros((len(moved), len(columns)))
    for row, key in enumerate(moved):
        contrasts[row, columns.index((GRID_TUNED, *key))] = 1
        contrasts[row, columns.index((GRID_DEFAULT, *key))] = -1
    judged = judge(values, contrasts)
    for row, key in enumerate(moved):
        counts = min(int(frame[key].notna().sum()) for frame in (default, tuned))
        if judged is None or counts < 2 or np.isnan(judged.p[row]):
            estimate = float(tuned[key].mean() - default[key].mean())
            found[key] = Difference(estimate=estimate, low=None, high=None, p=None)
        else:
            estimate, reach = float(judged.estimates[row]), float(judged.reach[row])
            found[key] = Difference(
                estimate=estimate, low=estimate - reach, high=estimate + reach, p=float(judged.p[row])
            )
    return found


def gains_frame(found: Mapping[BlockPair, Mapping[Metric, Mapping[Objective, Gain]]]) -> pd.DataFrame:
    """A row for each block, metric and objective, not rounded, as `tuning.csv` has them.

    Columns: the block's model and stage, ``direction``, ``metric``, ``pair``, ``triplet``, mean, std and n of both
    grids, ``gain``, its ``low``, ``high`` and ``p``, ``spread`` over seeds, and ``chose_default``.
    """
    rows: list[dict[str, Any]] = []
    for pair, by_metric in found.items():
        key = pair.default.key
        own: dict[str, Any] = {
            "dataset": key.dataset,
            "framework": key.framework,
            "backbone": key.backbone,
            "stage": key.stage,
        }
        for metric, by_objective in by_metric.items():
            for (name, triplet), gain in by_objective.items():
                row = own | {"direction": metric.direction, "metric": metric.name, "pair": name, "triplet": triplet}
                for side, cell in ((GRID_DEFAULT, gain.default), (GRID_TUNED, gain.tuned)):
                    row |= {f"{side}_mean": cell.mean, f"{side}_std": cell.std, f"{side}_n": cell.n}
                change = gain.difference
                if change is not None:
                    row |= {"gain": change.estimate, "low": change.low, "high": change.high, "p": change.p}
                rows.append(row | {"spread": gain.spread, "chose_default": gain.same})
    return pd.DataFrame(rows)
