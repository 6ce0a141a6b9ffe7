"""Whether a stage ended clearly below its own warm-up, so that its result shows damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CLEARLY = 0.05
"""A stage is flagged where its rsum is lower than that of its best warm-up epoch by more than this share of it."""


def below_warmup(history: Sequence[Mapping[str, Any]], warmup_epochs: int, best_epoch: int) -> str:
    """Compare the epoch that a stage reports with the best of its warm-up, both by val rsum.

    The warm-up trains with another gradient. An objective whose best epoch is worse than the warm-up left behind has
    undone some of it: the learning rate is too high, the features are too poor, or the stage is too short.

    Args:
        history: the stage's epochs (see :class:`~goal_core.training.plan.EpochRecord`).
        warmup_epochs: how many of the first ones are warm-up.
        best_epoch: the selected epoch, counted from 1.

    Returns:
        One line with both numbers; empty where the stage has no warm-up or is not more than 5 % below it.
    """
    rsum = {record["epoch"]: record["metrics"]["val/rsum"] for record in history if "val/rsum" in record["metrics"]}
    warmup = {epoch: value for epoch, value in rsum.items() if epoch <= warmup_epochs}
    if not warmup or best_epoch not in rsum:
        return ""
    top = max(warmup, key=lambda epoch: warmup[epoch])
    if rsum[best_epoch] >= (1 - CLEARLY) * warmup[top]:
        return ""
    lost = 1 - rsum[best_epoch] / warmup[top]
    return (
        f"val rsum {rsum[best_epoch]:.1f} in its best epoch ({best_epoch}), {lost:.0%} below the {warmup[top]:.1f} of "
        f"warm-up epoch {top}"
    )
