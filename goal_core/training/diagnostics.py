"""Diagnostics: a result below its own warm-up, and epochs in which the objective had no part."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

RATIO: Final = "train/objective_to_matching"
"""Of an epoch: the objective's gradient over that of matching, where both reach the encoders' outputs."""
WEAK: Final = 0.01
"""An epoch is flagged where the ratio is below this."""
CLEARLY: Final = 0.05
"""A stage is flagged where its rsum is lower than that of its best warm-up epoch by more than this share of it."""


def below_warmup(history: Sequence[Mapping[str, Any]], warmup_epochs: int, best_epoch: int) -> str:
    """Say in a line if the epoch that a stage reports is over 5 % below the best of its warm-up, both by val rsum.

    Such an objective has undone some of the warm-up: the learning rate is too high, the features are too poor, or the
    stage is too short.
    """
    rsum = {record["epoch"]: record["metrics"]["val/rsum"] for record in history if "val/rsum" in record["metrics"]}
    warmup = {epoch: value for epoch, value in rsum.items() if epoch <= warmup_epochs}
    if not warmup or best_epoch not in rsum:
        return ""
    top = max(warmup, key=lambda epoch: warmup[epoch])
    if rsum[best_epoch] >= (1 - CLEARLY) * warmup[top]:
        return ""
    below = f"{1 - rsum[best_epoch] / warmup[top]:.0%} below the {warmup[top]:.1f} of warm-up epoch {top}"
    return f"val rsum {rsum[best_epoch]:.1f} in its best epoch ({best_epoch}), {below}"


def weak_objective(history: Sequence[Mapping[str, Any]], warmup_epochs: int) -> str:
    """Say in a line if there are epochs in which a training was one by matching alone."""
    ratios = {record["epoch"]: record["metrics"][RATIO] for record in history if RATIO in record["metrics"]}
    ratios = {epoch: value for epoch, value in ratios.items() if epoch > warmup_epochs}
    if not (weak := [epoch for epoch, value in ratios.items() if value < WEAK]):
        return ""
    lowest = min(ratios, key=lambda epoch: ratios[epoch])
    epochs = f"{len(weak)} of {len(ratios)} epochs ({ratios[lowest]:.2g} of it in epoch {lowest})"
    return f"its gradient was below {WEAK:.0%} of that of matching in {epochs}"
