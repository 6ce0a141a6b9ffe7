"""An objective that is too weak beside matching is said to be."""

from __future__ import annotations

import pytest

from goal_core.training import EpochRecord, weak_objective


@pytest.mark.parametrize(
    ("ratios", "warmup", "said"),
    [
        ((0.2, 0.011), 0, ""),
        (
            (0.2, 0.009, 0.002),
            0,
            "its gradient was below 1% of that of matching in 2 of 3 epochs (0.002 of it in epoch 3)",
        ),
        ((0.001, 0.5), 1, ""),
        ((0.001, 0.0), 1, "its gradient was below 1% of that of matching in 1 of 1 epochs (0 of it in epoch 2)"),
        ((), 0, ""),
    ],
)
def test_epochs_after_the_warm_up_count(ratios: tuple[float, ...], warmup: int, said: str) -> None:
    history = [
        EpochRecord(epoch=epoch, time=0.0, metrics={"train/objective_to_matching": ratio})
        for epoch, ratio in enumerate(ratios, start=1)
    ]
    assert weak_objective(history, warmup) == said


def test_a_framework_without_a_loss_of_its_own_is_not_flagged() -> None:
    assert weak_objective([EpochRecord(epoch=1, time=0.0, metrics={"val/rsum": 1.0})], 0) == ""
