"""The default against the tuned grid of a block: the gain of each objective, and what becomes of their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import Block, CellSummary, Comparison, Difference, Objective
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import numbers_of, place_of, same_but_grid
from goal_sweep.analysis.statistics.comparison import difference_of
from goal_sweep.analysis.statistics.images import shared_noise
from goal_sweep.analysis.statistics.spread import judge
from goal_sweep.sweeps.results import DEFAULT, TUNED, Metric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockPair:
    """The two grids of a block."""

    default: Block
    tuned: Block

    @property
    def title(self) -> str:
        """The block's name without a grid."""
        return self.default.key.title.removesuffix(f", {DEFAULT} grid")

    def beyond_seeds(self, metric: Metric) -> tuple[str, ...]:
        """What the intervals of gains are for beside new seeds: what those of both grids are for."""
        one, other = (block.grids[metric.key].comparison.beyond_seeds for block in (self.default, self.tuned))
        return tuple(what for what in one if what in other)

    def in_both(self, metric: Metric) -> list[Objective]:
        """The objectives with a mean in both grids."""
        tuned = self.tuned.grids[metric.key].means
        return [name for name in self.default.grids[metric.key].means if name in tuned]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What tuning changed for one objective, by one metric of the test split, in points."""

    default: CellSummary
    tuned: CellSummary
    same: bool
    """Whether the choice was the default, so that both are one training and the gain is 0 by definition."""
    difference: Difference | None
    """Tuned minus default, paired by seed, corrected for the objectives of the block; None if a side has no value."""


def block_pairs(blocks: Iterable[Block]) -> tuple[BlockPair, ...]:
    """The default and the tuned grid of each block, where both have a number."""
    known = [block for block in blocks if not block.is_empty]
    return tuple(
        BlockPair(default=default, tuned=tuned)
        for default in known
        for tuned in known
        if (default.key.grid, tuned.key.grid) == (DEFAULT, TUNED) and same_but_grid(default.key, tuned.key)
    )


def gains(
    results: SweepResults, pair: BlockPair, metric: Metric, untouched: Collection[Objective] = ()
) -> dict[Objective, Gain]:
    """The gain of each objective of a block that has a value in either grid.

    Tuned and default trainings of a seed are paired, the noise of all cells of both grids is pooled, and the intervals
    hold together for all objectives: the rule of `analysis.statistics.compare` for these differences.

    Args:
        results: the sweep's results.
        pair: its two grids, or the blocks of two values of an axis.
        metric: the metric.
        untouched: objectives that do not depend on that axis, and have the same trainings in both.
    """
    default, tuned = (block.grids[metric.key].cells for block in (pair.default, pair.tuned))
    known = [key for key, cell in default.items() if cell.mean is not None or tuned[key].mean is not None]
    choices = {key: trail.choice for key, trail in results.trails_of(pair.tuned.key).items()}
    same = {key for key in known if key in untouched or ((chosen := choices.get(key)) and chosen.default)}
    changes = _differences(results, pair, metric, same)
    return {
        key: Gain(default=default[key], tuned=tuned[key], same=key in same, difference=changes.get(key))
        for key in known
    }


def _differences(
    results: SweepResults, pair: BlockPair, metric: Metric, same: Collection[Objective]
) -> dict[Objective, Difference]:
    both = pair.in_both(metric)
    changes = {key: Difference(estimate=0.0, low=0.0, high=0.0, p=1.0) for key in both if key in same}
    moved = [key for key in both if key not in same]
    if not moved:
        return changes
    runs = [results.of_block(results.counted, block.key) for block in (pair.default, pair.tuned)]
    values = [own.pivot(index="seed", columns=["pair", "triplet"], values=metric.test).astype(float) for own in runs]
    frame = pd.concat([values[0], values[1].drop(columns=list(changes))], axis=1, keys=[DEFAULT, TUNED])
    columns = [tuple(column) for column in frame.columns]
    contrasts = np.zeros((len(moved), len(columns)))
    for row, key in enumerate(moved):
        contrasts[row, columns.index((TUNED, *key))] = 1
        contrasts[row, columns.index((DEFAULT, *key))] = -1
    of_both = pd.concat([runs[0].assign(grid=DEFAULT), runs[1].assign(grid=TUNED)])
    images = shared_noise(of_both, ("grid", "pair", "triplet"))
    images_KK = None if images is None else images[metric.key].loc[columns, columns].to_numpy(float)
    judged = judge(frame.to_numpy(float), contrasts, columns, images_KK)
    for row, key in enumerate(moved):
        changes[key] = difference_of(judged, row, float(values[1][key].mean() - values[0][key].mean()))
    return changes


def gains_frame(gained: Mapping[BlockPair, Mapping[Metric, Mapping[Objective, Gain]]]) -> pd.DataFrame:
    """A row for each block, metric and objective, not rounded, as `tuning.csv` has them.

    Columns: the block's model and stage, ``direction``, ``metric``, ``pair``, ``triplet``, mean, std and n of both
    grids, ``gain``, its ``low``, ``high`` and ``p``, and ``chose_default``.
    """
    rows: list[dict[str, Any]] = []
    for pair, by_metric in gained.items():
        own = {name: getattr(pair.default.key, name) for name in ("dataset", "framework", "backbone", "stage")}
        for metric, by_objective in by_metric.items():
            for objective, gain in by_objective.items():
                row = own | place_of(metric, objective)
                for side, cell in ((DEFAULT, gain.default), (TUNED, gain.tuned)):
                    row |= {f"{side}_{name}": value for name, value in numbers_of(cell).items()}
                change = gain.difference
                if change is not None:
                    row |= {"gain": change.estimate, "low": change.low, "high": change.high, "p": change.p}
                rows.append(row | {"chose_default": gain.same})
    return pd.DataFrame(rows)


def fates(default: Comparison, tuned: Comparison, unmoved: Collection[Objective] = ()) -> dict[str, int]:
    """How many of the pairs that the default grid tells apart are confirmed, reversed or undecided in the tuned one.

    A pair of ``unmoved`` objectives, which have the same trainings in both grids, is none of these.
    """
    apart = [pair for pair, change in default.differences.items() if change.verdict == "better"]
    known = [pair for pair in apart if pair in tuned.differences]
    verdicts = [tuned.differences[pair].verdict for pair in known if not set(pair) <= set(unmoved)]
    confirmed, turned = verdicts.count("better"), verdicts.count("worse")
    undecided = len(verdicts) - confirmed - turned
    counts = {"confirmed": confirmed, "reversed": turned, "undecided": undecided}
    return counts | {"unmoved": len(known) - len(verdicts)}
