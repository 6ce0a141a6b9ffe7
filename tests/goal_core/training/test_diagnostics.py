"""Diagnostics: a result below its own warm-up, and epochs in which the objective was too weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.training import EpochRecord, below_warmup, weak_objective
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import FROZEN, folders_of, unit_of


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


def test_the_log_of_such_a_training_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = unit_of("con/con", "sig-ms/cir", stage=replace(FROZEN, epochs=2, lr_drops=()))
    folders = folders_of(unit, tmp_path)
    rsums = iter([100.0, 100.0, 50.0, 150.0])  # epoch by epoch, cell by cell

    def recalls(encoder: object, split: object, embedded: object) -> dict[str, float]:
        return {"val/i2t_r1": 1.0, "val/t2i_r1": 1.0, "val/rsum": next(rsums)}

    monkeypatch.setattr("goal_sweep.goal_core.training.cells.validation.recalls_of", recalls)
    train_unit(unit, folders)
    damaged, healthy = (folder.path("log.txt").read_text() for folder in folders.values())
    assert "BELOW ITS WARM-UP: val rsum 50.0 in its best epoch (2), 50% below the 100.0 of warm-up epoch 1" in damaged
    assert "WARM-UP" not in healthy


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
