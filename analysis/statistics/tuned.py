"""The default against the tuned grid of a block: the gain of each objective, and whether the ranking survives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from math import factorial, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import Block, CellSummary, Difference, Objective
from analysis.run_schema import GRID_DEFAULT, GRID_TUNED, Metric
from analysis.statistics.aggregation import counted, of_block
from analysis.statistics.comparison import compare
from analysis.statistics.grids import chose_default, same_but_grid
from analysis.statistics.spread import judge

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns

_MAX_LISTED_SEEDS = 6
"""Up to this many seeds every draw of the bootstrap is listed; beyond, draws are random."""
_DRAWS = 1000
_LEVEL = 0.95


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """Whether the ranking of a block's objectives by one metric survives tuning."""

    pair: BlockPair
    metric: Metric
    tau: float | None
    """Kendall's tau-b between the means of both grids; None where it is not defined."""
    low: float | None
    """Lower end of its 95 % bootstrap interval over seeds; None with a single seed."""
    high: float | None
    objectives: int
    """Those with a value in both grids."""
    kept: int
    """Pairs of objectives in the same order in both grids, by their means."""
    pairs: int
    """All pairs of these objectives."""
    apart: int
    """Pairs that the default grid tells apart by more than noise."""
    confirmed: int
    """Those of them that the tuned grid tells apart in the same order."""
    reversed: int
    """Those of them that the tuned grid tells apart in the other order."""

    @property
    def winners(self) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
        """The objectives with the highest mean as printed, in the default and in the tuned grid."""
        grids = [block.grids[self.metric.key] for block in (self.pair.default, self.pair.tuned)]
        default, tuned = (tuple(key for key in grid.means if key in grid.best()) for grid in grids)
        return default, tuned

    @property
    def same_winner(self) -> bool:
        """Whether an objective has the highest mean as printed in both grids."""
        default, tuned = self.winners
        return bool(set(default) & set(tuned))


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
            same=_is_same(sweep, pair, key),
            spread=_spread(default, tuned, key),
            difference=found.get(key),
        )
        for key, cell in cells[0].items()
        if cell.mean is not None or cells[1][key].mean is not None
    }


def survivals(sweep: SweepRuns, pairs: Iterable[BlockPair]) -> tuple[Survival, ...]:
    """Whether the ranking survives, for each block and metric with two objectives in both grids."""
    return tuple(
        found
        for pair in pairs
        for grid in pair.default.grids.values()
        if (found := _survival(sweep, pair, grid.metric)) is not None
    )


def values_of(sweep: SweepRuns, block: Block, metric: Metric) -> pd.DataFrame:
    """The counted runs of a block by one test metric: a row for each seed, a column for each objective."""
    runs = of_block(counted(sweep), block.key)
    return runs.pivot(index="seed", columns=["pair", "triplet"], values=metric.test).astype(float)


def _in_both(default: pd.DataFrame, tuned: pd.DataFrame) -> list[Objective]:
    names = [[(str(name[0]), str(name[1])) for name in frame.columns] for frame in (default, tuned)]
    return [name for name in names[0] if name in names[1]]


def _is_same(sweep: SweepRuns, pair: BlockPair, key: Objective) -> bool:
    return chose_default(sweep.tuning, pair.tuned.key, "/".join(key))


def _spread(default: pd.DataFrame, tuned: pd.DataFrame, key: Objective) -> float | None:
    if key not in default.columns or key not in tuned.columns:
        return None
    changes = (tuned[key] - default[key]).dropna()
    return float(changes.std(ddof=1)) if len(changes) > 1 else None


def _differences(
    sweep: SweepRuns, pair: BlockPair, default: pd.DataFrame, tuned: pd.DataFrame
) -> dict[Objective, Difference]:
    both = _in_both(default, tuned)
    same = [key for key in both if _is_same(sweep, pair, key)]
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


def _survival(sweep: SweepRuns, pair: BlockPair, metric: Metric) -> Survival | None:
    default, tuned = (values_of(sweep, block, metric) for block in (pair.default, pair.tuned))
    both = _in_both(default, tuned)
    if len(both) < 2:
        return None
    means = [frame[both].mean().round(9) for frame in (default, tuned)]
    signs = [np.sign([mean[one] - mean[other] for one, other in combinations(both, 2)]) for mean in means]
    low, high = _interval(default[both], tuned[both])
    comparisons = [compare(frame) for frame in (default, tuned)]
    verdicts = []
    for one, other in combinations(both, 2):
        first, second = (comparison.difference(one, other) for comparison in comparisons)
        if first.told_apart:
            verdicts.append(np.sign(first.estimate * second.estimate) if second.told_apart else 0)
    return Survival(
        pair=pair,
        metric=metric,
        tau=_tau(*(mean.to_numpy(float) for mean in means)),
        low=low,
        high=high,
        objectives=len(both),
        kept=int((signs[0] * signs[1] > 0).sum()),
        pairs=len(signs[0]),
        apart=len(verdicts),
        confirmed=sum(verdict > 0 for verdict in verdicts),
        reversed=sum(verdict < 0 for verdict in verdicts),
    )


def _tau(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """Kendall's tau-b; None if all entries of a side are equal."""
    if min(np.ptp(one), np.ptp(other)) == 0:
        return None
    return float(stats.kendalltau(one, other).statistic)


def _interval(default: pd.DataFrame, tuned: pd.DataFrame) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of tau when the seeds are drawn again, the same ones for both grids.

    Draws in which an objective has no run are left out.
    """
    seeds = default.index.union(tuned.index)
    if len(seeds) < 2:
        return None, None
    arrays = [frame.reindex(seeds).to_numpy(float) for frame in (default, tuned)]
    found: list[tuple[float, float]] = []
    for counts, weight in _draws(len(seeds)):
        means = [_weighted(array, counts) for array in arrays]
        tau = None if any(np.isnan(mean).any() for mean in means) else _tau(means[0], means[1])
        if tau is not None:
            found.append((tau, weight))
    if not found:
        return None, None
    found.sort()
    shares = np.cumsum([weight for _, weight in found])
    tail = (1 - _LEVEL) / 2 * shares[-1]
    low = int(np.searchsorted(shares, tail))
    high = int(np.searchsorted(shares, shares[-1] - tail))
    return found[low][0], found[min(high, len(found) - 1)][0]


def _draws(num: int) -> Iterator[tuple[NDArray[np.float64], float]]:
    """How often each of the seeds is drawn, and the weight of this draw."""
    if num > _MAX_LISTED_SEEDS:
        generator = np.random.default_rng(0)
        for _ in range(_DRAWS):
            yield np.bincount(generator.integers(num, size=num), minlength=num).astype(float), 1.0
        return
    for drawn in combinations_with_replacement(range(num), num):
        counts = np.bincount(drawn, minlength=num)
        yield counts.astype(float), factorial(num) / prod(factorial(int(count)) for count in counts)


def _weighted(values_SK: NDArray[np.float64], counts_S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of the drawn runs, rounded so that equal means stay equal; NaN for an objective that has none."""
    weights = np.where(np.isnan(values_SK), 0.0, counts_S[:, None])
    totals = weights.sum(axis=0)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = (weights * np.nan_to_num(values_SK)).sum(axis=0) / totals
    return means.round(9)


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
