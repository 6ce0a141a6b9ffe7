"""The one rule for "within noise", for the grids at the end of a launch. This module calls `analysis`."""

from __future__ import annotations

from collections.abc import Mapping

from goal_sweep.runners.launch.view.grids import Judgement


def judge(values: Mapping[tuple[str, str], Mapping[int, float]]) -> Judgement | None:
    """Find the best of a grid and what is within noise of it.

    Args:
        values: of each objective (pair, triplet), the points of each seed that is done.

    Returns:
        None where no objective has two seeds, or seeds agree exactly.
    """
    if all(len(of_seed) < 2 for of_seed in values.values()):
        return None
    import pandas as pd

    from goal_sweep.analysis.statistics.comparison import compare

    compared = compare(pd.DataFrame({objective: pd.Series(of_seed) for objective, of_seed in values.items()}))
    if compared.best is None or all(change.p is None for change in compared.differences.values()):
        return None
    return Judgement(best=compared.best, level=compared.level)
