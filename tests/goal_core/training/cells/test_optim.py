"""Learning rates, the loss of warm-up epochs, and the published loop's modes, against plain loops."""

from dataclasses import replace

import pytest
import torch

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.training.cells.optim import build_optimizer, lr_at, set_lr, sum_hinge, validated_since
from tests.helpers.training_cases import GRID, SET_FROZEN


def test_mode_follows_the_published_loop() -> None:
    """Against the loop itself: training mode at an epoch's start, evaluation mode once it has validated."""
    steps, every, number = 1_133, 500, 0
    for epoch in range(5):
        training = True
        for step in range(steps):
            assert validated_since(epoch * steps, step) == (not training)
            number += 1
            if number % every == 0:
                training = False


def loop_of_the_sum_hinge(S: list[list[float]], margin: float, ids: list[int]) -> float:
    total = 0.0
    for i, row in enumerate(S):
        for j, score in enumerate(row):
            if ids[i] != ids[j]:
                total += max(0.0, margin + score - S[i][i]) + max(0.0, margin + score - S[j][j])
    return total


@pytest.mark.parametrize("ids", [None, [0, 1, 0, 2, 1, 3]])
def test_the_warm_up_is_that_of_a_plain_loop(ids: list[int] | None) -> None:
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.nn.functional.normalize(torch.randn(6, 4, generator=generator)) for _ in range(2))
    ours = sum_hinge(images, texts, 0.2, None if ids is None else torch.tensor(ids))
    expected = loop_of_the_sum_hinge((images @ texts.T).tolist(), 0.2, ids or list(range(6)))
    assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_each_part_has_its_learning_rate() -> None:
    framework = framework_of(GRID)
    tokenizer = framework.tokenizer(GRID, ["a b c"], 1)
    heads = framework.heads(GRID, num_features=8, tokenizer=tokenizer, seed=1)
    groups = heads.parameter_groups(0.1)
    assert {id(p) for group in groups for p in group.parameters} == {id(p) for p in heads.parameters()}
    optimizer = build_optimizer(groups, SET_FROZEN)
    set_lr(optimizer, 5e-4)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([5e-4, 5e-5])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-4, 1e-4]


def test_the_linear_schedule_rises_and_falls_step_by_step() -> None:
    stage = replace(SET_FROZEN, epochs=2, lr=1.0, schedule="linear", lr_warmup=0.2)
    rates = [lr_at(stage, epoch, step, 5) for epoch in range(2) for step in range(5)]
    assert rates == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    with pytest.raises(ConfigError, match="lr_drops belong to schedule drops"):
        replace(stage, lr_drops=(1,))
