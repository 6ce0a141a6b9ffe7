"""The pair weight and the triplet weight on their own: their means, their differences, and their interaction.

Every objective is trained with the same seeds, so the mean over the other weight is taken within each seed. The means
are compared by the rule that compares objectives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from goal_sweep.analysis.blocks import Array, CellSummary, Comparison, Objective, Weights
from goal_sweep.analysis.statistics.comparison import compare

FACTORS = ("pair", "triplet")


def crossed(objectives: Collection[Objective]) -> list[Objective]:
    """The objectives that form a whole grid: the weight that lacks most combinations goes, until none is missing."""
    left = list(objectives)
    while holes := [key for key in product(*levels_of(left)) if key not in left]:
        lacking = Counter((part, key[part]) for key in reversed(holes) for part in (0, 1))
        (part, weight), _ = lacking.most_common(1)[0]
        left = [key for key in left if key[part] != weight]
    return left


def levels_of(objectives: Collection[Objective]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights of some objectives."""
    pairs, triplets = (list(dict.fromkeys(key[part] for key in objectives)) for part in (0, 1))
    return pairs, triplets


def weigh(values: pd.DataFrame, images: pd.DataFrame | None = None) -> Weights:
    """Average and compare the weights of a grid.

    A weight has a value for each seed that has all its cells. The interaction is compared over the seeds with the whole
    grid: what remains of an objective when the means of its row and column are subtracted.

    Args:
        values: as of `compare`, row by row.
        images: as of `compare`.

    Returns:
        Nothing with fewer than two pair or triplet weights.
    """
    names = crossed([(str(name[0]), str(name[1])) for name in values.dropna(axis=1, how="all").columns])
    pairs, triplets = levels_of(names)
    num_p, num_t = len(pairs), len(triplets)
    if min(num_p, num_t) < 2:
        return Weights()
    grid_SPT = values[names].to_numpy(float).reshape(-1, num_p, num_t)
    of_pairs, of_triplets = grid_SPT.mean(axis=2, keepdims=True), grid_SPT.mean(axis=1, keepdims=True)
    rest = (grid_SPT - of_pairs - of_triplets + grid_SPT.mean(axis=(1, 2), keepdims=True)).reshape(len(values), -1)
    mean_P, mean_T = np.full((1, num_p), 1 / num_p), np.full((1, num_t), 1 / num_t)

    def compared(values_SL: Array, labels: list[Any], to_LK: Array, free: int | None = None) -> Comparison[Any]:
        frame = pd.DataFrame(values_SL, columns=labels)
        if images is None:
            return compare(frame, free=free)
        of_images = to_LK @ images.loc[names, names].to_numpy() @ to_LK.T
        return compare(frame, pd.DataFrame(of_images, frame.columns, frame.columns), free=free)

    own = {"pair": (of_pairs[:, :, 0], pairs), "triplet": (of_triplets[:, 0], triplets)}
    return Weights(
        levels={
            (factor, level): CellSummary.of(column[~np.isnan(column)])
            for factor, (values_SL, levels) in own.items()
            for level, column in zip(levels, values_SL.T, strict=True)
        },
        comparisons={
            "pair": compared(*own["pair"], np.kron(np.eye(num_p), mean_T)),
            "triplet": compared(*own["triplet"], np.kron(mean_P, np.eye(num_t))),
            "interaction": compared(
                rest, names, np.kron(np.eye(num_p) - mean_P, np.eye(num_t) - mean_T), (num_p - 1) * (num_t - 1)
            ),
        },
    )
