"""The effects of the pair weight and the triplet weight on recall: marginal means, and which effect is significant.

Every objective is trained on the same seeds of the same blocks, so a *subject* is measured under all P x T
combinations, and each effect is tested against its variation between subjects. Within one block the subjects are its
seeds, and results generalise to other seeds of this block. Over several blocks the subjects are the blocks, averaged
over seeds, and results generalise to other blocks. Seeds of different blocks are never pooled as if independent.

An effect is significant if any of its contrasts is, by the rule of `analysis.statistics.spread`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import MODEL_COLUMNS
from goal_sweep.analysis.statistics.spread import Array, judge, pairwise
from goal_sweep.sweeps.results import METRICS, PAIRS, TRIPLETS, Metric, in_order

MARGINAL_COLUMNS = (*MODEL_COLUMNS, "stage")
"""The block's columns in the frame of :func:`marginals`, in order."""
_USED_BY_INTERACTION, _USED_WITH_TWO = 0.6, 0.4
"""The share of 5 % that the test of an interaction uses where spreads are equal; and with two subjects. The two tests
of a main effect, which must both pass, use all of it each."""
_FACTORS = {"pair": PAIRS, "triplet": TRIPLETS}
EFFECTS = {"pair": "pair weight", "triplet": "triplet weight", "pair:triplet": "interaction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One row of the analysis."""

    name: str
    """A key of :data:`EFFECTS`."""
    subjects: int
    p: float
    """Of the largest contrast, corrected for the number of contrasts; NaN where runs agree too exactly to judge it."""
    spread: float
    """Highest minus lowest level mean, in points; for the interaction the largest deviation of a cell from the sum
    of its row's and column's effects."""


def crossed_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of the objectives that form a grid, without those of a user's weights that would leave holes in it.

    A user's weight stays if it is combined with all known weights, and with the user's weights that stay before it.

    Args:
        runs: runs that count.
    """
    combined = set(zip(runs["pair"], runs["triplet"], strict=True))
    pairs, triplets = ([name for name in known if name in set(runs[factor])] for factor, known in _FACTORS.items())
    for name in sorted(set(runs["pair"]) - set(PAIRS)):
        pairs += [name] if {(name, triplet) for triplet in triplets} <= combined else []
    for name in sorted(set(runs["triplet"]) - set(TRIPLETS)):
        triplets += [name] if {(pair, name) for pair in pairs} <= combined else []
    return runs[runs["pair"].isin(pairs) & runs["triplet"].isin(triplets)]


def marginals(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean of each weight over the other one, for each block and metric.

    The other weight is averaged within each seed first; the mean and standard deviation are over seeds. A seed that
    lacks a cell of a level is excluded from that level, so that levels are comparable.

    Args:
        runs: runs that count.

    Returns:
        Columns: the block's, ``direction``, ``metric``, ``factor``, ``level``, ``mean``, ``std`` (ddof=1) and ``n``
        seeds. A level without a complete seed has n = 0 and no mean.
    """
    rows = []
    for factor, block, frame in (
        (factor, block, frame) for factor in _FACTORS for block, frame in runs.groupby(list(MARGINAL_COLUMNS))
    ):
        num_other = frame["triplet" if factor == "pair" else "pair"].nunique()
        tests = [metric.test for metric in METRICS.values()]
        of_seeds = frame.groupby([factor, "seed"])[tests].agg(["mean", "count"])
        for metric, level in product(METRICS.values(), in_order(frame[factor], _FACTORS[factor])):
            here = of_seeds.loc[level][metric.test]
            values = here.loc[here["count"] == num_other, "mean"]
            numbers = (values.mean(), values.std(ddof=1), len(values))
            rows.append((*block, metric.direction, metric.name, factor, level, *numbers))
    columns = [*MARGINAL_COLUMNS, "direction", "metric", "factor", "level", "mean", "std", "n"]
    return pd.DataFrame(rows, columns=columns)


def factor_effects(values: pd.DataFrame, images: pd.DataFrame | None = None) -> tuple[Effect, ...]:
    """Main effects and interaction.

    Args:
        values: columns ``subject``, ``pair``, ``triplet`` and ``value``, one row each. Subjects that lack a
            combination that another has are excluded.
        images: covariance of the objectives over test images, where the subjects are seeds of one block.

    Returns:
        The effects in the order of :data:`EFFECTS`; empty with fewer than two complete subjects or fewer than two
        levels of a factor.
    """
    wide = whole_subjects(values)
    pairs, triplets = (wide.columns.unique(level) for level in ("pair", "triplet"))
    if len(wide) < 2 or min(len(pairs), len(triplets)) < 2:
        return ()
    names = list(product(pairs, triplets))
    values_SPT = wide[names].to_numpy().reshape(len(wide), len(pairs), len(triplets))
    images_KK = None if images is None else images.loc[names, names].to_numpy(float)
    means = wide.mean()
    return tuple(
        Effect(name=name, subjects=len(wide), p=p, spread=_spread(name, means))
        for name, p in p_values(values_SPT, images_KK).items()
    )


def p_values(values_SPT: Array, images_KK: Array | None = None) -> dict[str, float]:
    """The significance of each effect, by name.

    A main effect counts only if it passes two tests: of the level means per seed, where a seed's effect on a whole
    level is noise; and against the noise of single objectives, so that one noisy objective cannot pass for its level.
    An interaction is the deviation of any objective from the sum of its row's and column's effects.

    Args:
        values_SPT: by subject, pair weight and triplet weight, in points; at least two subjects.
        images_KK: covariance of the objectives, row by row, over samples of test images.
    """
    num_subjects, num_pairs, num_triplets = values_SPT.shape
    cells, labels = values_SPT.reshape(num_subjects, -1), list(product(range(num_pairs), range(num_triplets)))
    over_triplets, over_pairs = np.full((1, num_triplets), 1 / num_triplets), np.full((1, num_pairs), 1 / num_pairs)
    sides = {
        "pair": (np.kron(np.eye(num_pairs), over_triplets), pairwise(num_pairs)),
        "triplet": (np.kron(over_pairs, np.eye(num_triplets)), pairwise(num_triplets)),
    }
    found = {}
    for name, (means_LK, contrasts_ML) in sides.items():
        images_LL = None if images_KK is None else means_LK @ images_KK @ means_LK.T
        levels = [(level,) for level in range(len(means_LK))]
        of_levels = _smallest_p(cells @ means_LK.T, contrasts_ML, levels, images_LL, 1.0)
        of_cells = _smallest_p(cells, contrasts_ML @ means_LK, labels, images_KK, 1.0)
        found[name] = float(np.maximum(of_levels, of_cells))
    used = _USED_WITH_TWO if num_subjects == 2 else _USED_BY_INTERACTION
    deviations = np.kron(np.eye(num_pairs) - over_pairs, np.eye(num_triplets) - over_triplets)
    return found | {"pair:triplet": _smallest_p(cells, deviations, labels, images_KK, used)}


def _smallest_p(
    values: Array, contrasts: Array, labels: Sequence[tuple[Hashable, ...]], images: Array | None, used: float
) -> float:
    judged = judge(values, contrasts, labels, images, used=used)
    assert judged is not None  # there are two complete subjects
    return float(judged.p.min())


def whole_subjects(values: pd.DataFrame) -> pd.DataFrame:
    """What :func:`factor_effects` uses: a row for each complete subject, a column for each combination.

    There are no rows if the combinations are not a full grid.
    """
    wide = values.pivot(index="subject", columns=["pair", "triplet"], values="value").dropna()
    is_grid = wide.shape[1] == values["pair"].nunique() * values["triplet"].nunique()
    return wide if is_grid else wide.iloc[:0]


def subjects_of(runs: pd.DataFrame, metric: Metric, within: Iterable[str]) -> pd.DataFrame:
    """Runs in the form that :func:`factor_effects` expects, averaged over everything but subject and objective.

    Args:
        runs: runs that count.
        metric: the metric to analyse.
        within: the columns that identify a subject: ``seed`` within one block, the model's columns over several.
    """
    columns = list(within)
    means = runs.groupby([*columns, "pair", "triplet"], sort=False)[metric.test].mean().rename("value").reset_index()
    means["subject"] = means.groupby(columns).ngroup()
    return means[["subject", "pair", "triplet", "value"]]


def _spread(name: str, cells: pd.Series[float]) -> float:
    if name != "pair:triplet":
        levels = cells.groupby(level=name).mean()
        return float(levels.max() - levels.min())
    rows = cells.groupby(level="pair").transform("mean")
    columns = cells.groupby(level="triplet").transform("mean")
    return float((cells - rows - columns + cells.mean()).abs().max())
