"""Whether an objective was too weak beside a loss of the framework's own to have trained anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

RATIO: Final = "train/objective_to_matching"
"""Of an epoch: the objective's gradient over that of matching, where both reach the encoders' outputs."""
WEAK: Final = 0.01
"""An epoch is flagged where the ratio is below this."""


def weak_objective(history: Sequence[Mapping[str, Any]], warmup_epochs: int) -> str:
    """Find the epochs in which a training was one by matching alone.

    Args:
        history: the stage's epochs (see :class:`~goal_core.training.plan.EpochRecord`).
        warmup_epochs: how many of the first ones are warm-up, in which the objective has no part.

    Returns:
        One line with the numbers; empty where there is no such epoch, or no loss beside the objective.
    """
    ratios = {record["epoch"]: record["metrics"][RATIO] for record in history if RATIO in record["metrics"]}
    ratios = {epoch: value for epoch, value in ratios.items() if epoch > warmup_epochs}
    weak = [epoch for epoch, value in ratios.items() if value < WEAK]
    if not weak:
        return ""
    lowest = min(ratios, key=lambda epoch: ratios[epoch])
    return (
        f"its gradient was below {WEAK:.0%} of that of matching in {len(weak)} of {len(ratios)} epochs "
        f"({ratios[lowest]:.2g} of it in epoch {lowest})"
    )
