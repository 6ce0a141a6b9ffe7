"""The statistics of batches by name, as a training records them."""

from goal_sweep.goal_core.objectives.stats import ObjectiveStats, named


def numbers_of(stats: ObjectiveStats) -> list[dict[str, float]]:
    """Those of each cell; an objective by itself is one."""
    names, values = stats.numbers()
    return [named(names, own) for own in values.view(len(names), -1).T.tolist()]
