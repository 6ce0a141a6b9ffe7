"""The report's rule for which objectives differ, for the grids at the end of a launch. This module calls `analysis`."""

from __future__ import annotations

from collections.abc import Mapping

from goal_sweep.runners.launch.view.grids import Judgement


def judge(points: Mapping[tuple[str, str], Mapping[int, float]]) -> Judgement | None:
    """Find the best of a grid and what is not significantly worse, for new seeds on these test images.

    Args:
        points: of each objective (pair, triplet), by seed.

    Returns:
        None where no difference can be judged: no two objectives have two seeds, or seeds agree exactly.
    """
    if all(len(of_seed) < 2 for of_seed in points.values()):
        return None
    import pandas as pd

    from goal_sweep.analysis.statistics.comparison import compare

    compared = compare(pd.DataFrame({objective: pd.Series(of_seed) for objective, of_seed in points.items()}))
    if compared.best is None or not compared.is_judged:
        return None
    return Judgement(best=compared.best, level=compared.near)
