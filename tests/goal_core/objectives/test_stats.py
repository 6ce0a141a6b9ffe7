"""What is logged of a batch, and when training counts as collapsed."""

import math
from typing import Any

import pytest
import torch

from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.stats import is_collapsed
from tests.helpers.statistics import numbers_of


def test_the_numbers_of_a_hand_checked_batch() -> None:
    """s_p = .9, .5; images meet .6 and .2, texts meet .2 and .6; only text 1 is within the margin of .2."""
    S = torch.tensor([[0.9, 0.6], [0.2, 0.5]], dtype=torch.float64)
    stats = GradientObjective(pair="lin", triplet="con").forward_with_stats(S, torch.eye(2, dtype=S.dtype))[1]
    (values,) = numbers_of(stats)
    assert values["hinge"] == pytest.approx(0.3)
    assert values["triplets"] == 4
    assert values["pos_sim"] == pytest.approx(0.7)
    assert values["neg_sim"] == pytest.approx(0.4)
    assert values["triplet_weight"] == values["active"] == 0.25
    assert values["pos_weight"] == pytest.approx(0.3)
    assert values["neg_weight"] == pytest.approx(0.4)
    assert values["pos_sim_p50"] == pytest.approx(0.7)
    assert values["neg_sim_p90"] == pytest.approx(0.6)
    # G = [[0, .6], [0, -.5]]: dL/dX = G, dL/dY = G^T S.
    G = torch.tensor([[0.0, 0.6], [0.0, -0.5]], dtype=torch.float64)
    assert values["grad_norm"] == pytest.approx(math.hypot(float(G.norm()), float((G.t() @ S).norm())))
    assert "pos_set" not in values
    assert all(isinstance(value, float) for value in values.values())


def test_set_sizes_are_logged_where_the_weight_has_sets() -> None:
    generator = torch.Generator().manual_seed(0)
    images, texts = torch.nn.functional.normalize(torch.randn(2, 8, 3, generator=generator), dim=2)
    (values,) = numbers_of(GradientObjective(pair="lin-ms", triplet="con").forward_with_stats(images, texts)[1])
    assert 0 < values["pos_set"] <= 7
    assert 0 < values["neg_set"] <= 6


def test_anchors_without_a_negative_are_left_out_of_the_means() -> None:
    S = torch.tensor([[0.9, 0.8, 0.1], [0.8, 0.7, 0.3], [0.1, 0.3, 0.1]], dtype=torch.float64)
    objective = GradientObjective(pair="con", triplet="con")
    texts = torch.eye(3, dtype=S.dtype)
    (values,) = numbers_of(objective.forward_with_stats(S, texts, torch.tensor([0, 0, 1]))[1])
    assert values["neg_sim"] == pytest.approx((0.1 + 0.3 + 0.3) / 3)
    single = numbers_of(objective.forward_with_stats(S[2:], texts[2:])[1])  # below the margin
    assert single == [{"hinge": 0.0, "triplets": 0.0, "grad_norm": 0.0}]


@pytest.mark.parametrize(("pair", "triplet", "margin"), [("con", "nca", 0.2), ("con", "con", 0.35)])
def test_coinciding_embeddings_cost_the_margin_for_every_triplet(pair: str, triplet: str, margin: float) -> None:
    params: dict[str, Any] = {"margin": margin} if triplet == "con" else {}
    objective = GradientObjective(pair=pair, triplet=triplet, **params)
    same = torch.nn.functional.normalize(torch.ones(16, 4, dtype=torch.float64))
    scalar = objective(same, same)
    assert objective.margin == margin
    assert float(scalar) == pytest.approx(2 * 16 * margin)
    assert is_collapsed(float(scalar), 32, objective.margin)


@pytest.mark.parametrize(
    ("hinge", "num_triplets", "collapsed"),
    [(51.2, 256, True), (51.2 * 1.009, 256, True), (51.2 * 0.98, 256, False), (0.0, 0, False), (math.nan, 256, False)],
)
def test_a_hinge_near_that_of_coinciding_embeddings_is_collapsed(hinge: float, num_triplets: int, collapsed: bool):
    assert is_collapsed(hinge, num_triplets, 0.2) == collapsed
