"""Diagnostics: a result below its own warm-up, and epochs in which the objective was too weak."""

import pytest

from goal_sweep.goal_core.training import below_warmup, weak_objective
from goal_sweep.goal_core.training.plan import EpochRecord


def history(*rsums: float) -> list[EpochRecord]:
    return [EpochRecord(epoch=epoch, time=0.0, metrics={"val/rsum": rsum}) for epoch, rsum in enumerate(rsums, start=1)]


@pytest.mark.parametrize(
    ("rsums", "warmup", "best", "said"),
    [
        ((50, 100, 60, 61), 2, 4, "val rsum 61.0 in its best epoch (4), 39% below the 100.0 of warm-up epoch 2"),
        ((100, 50, 94), 2, 3, "val rsum 94.0 in its best epoch (3), 6% below the 100.0 of warm-up epoch 1"),
        ((100, 50, 95), 2, 3, ""),
        ((100, 120, 90), 1, 2, ""),
        ((100, 50), 0, 2, ""),
        ((0, 0), 1, 2, ""),
        ((), 1, 2, ""),
    ],
)
def test_only_a_clear_loss_is_flagged(rsums: tuple[float, ...], warmup: int, best: int, said: str) -> None:
    assert below_warmup(history(*rsums), warmup, best) == said


@pytest.mark.parametrize(
    ("ratios", "warmup", "said"),
    [
        ((0.2, 0.011), 0, ""),
        ((0.2, 0.009, 0.002), 0, "2 of 3 epochs (0.002 of it in epoch 3)"),
        ((0.001, 0.5), 1, ""),
        ((0.001, 0.0), 1, "1 of 1 epochs (0 of it in epoch 2)"),
        ((), 0, ""),
    ],
)
def test_epochs_after_the_warm_up_count(ratios: tuple[float, ...], warmup: int, said: str) -> None:
    history = [
        EpochRecord(epoch=epoch, time=0.0, metrics={"train/objective_to_matching": ratio})
        for epoch, ratio in enumerate(ratios, start=1)
    ]
    found = weak_objective(history, warmup)
    assert found.endswith(said)
    assert bool(found) == bool(said)
