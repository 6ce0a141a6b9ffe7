"""Which of the objectives are gradients of a loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.objectives import VARIANTS, list_objectives, pair_weights, triplet_weights
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.pointwise import circulation, has_scalar_loss, weights_at
from tests.helpers import objective_oracle as oracle

PAPER = {"con/con", "con/nca", "lin/cir"}
RELEASED = PAPER | {"lin/con", "sig/con", "lin-ms/con", "sig-ms/con"}
PAPER_GRID = [(pair, triplet) for pair in oracle.PAIRS for triplet in oracle.TRIPLETS]


def test_the_catalogue_counts_three_losses_in_the_paper_and_seven_in_the_released_code() -> None:
    objectives = [found for found in list_objectives() if (found.pair, found.triplet) in PAPER_GRID]
    assert [(objective.pair, objective.triplet) for objective in objectives] == PAPER_GRID
    assert {objective.name for objective in objectives if objective.scalar_loss["paper"]} == PAPER
    for variant in ("tables", "released"):
        assert {objective.name for objective in objectives if objective.scalar_loss[variant]} == RELEASED
    assert {o.name: o.literature for o in objectives if o.literature != "new"} == {
        "con/con": "triplet loss",
        "con/nca": "NT-Xent loss",
        "lin/cir": "Circle loss",
        "sig/con": "binomial deviance",
        "sig-ms/con": "multi-similarity loss",
    }


def test_a_weight_of_your_own_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(triplet_weights["con"], name="always", function=lambda triplets: torch.ones_like(triplets.pos))
    monkeypatch.setitem(triplet_weights, "always", replace(entry, parameters={}))

    losses = {found.name: found.scalar_loss["paper"] for found in list_objectives() if found.triplet == "always"}

    assert losses["con/always"]
    assert losses["lin/always"]
    assert list(losses) == [f"{pair}/always" for pair in pair_weights]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("pair", "triplet"), PAPER_GRID)
def test_the_verdict_is_not_close(pair: str, triplet: str, variant: str) -> None:
    work = circulation(GradientObjective(pair=pair, triplet=triplet, variant=variant))
    if f"{pair}/{triplet}" in (PAPER if variant == "paper" else RELEASED):
        assert work < 1e-6
    else:
        assert work > 1e-2


def test_parameters_decide_too() -> None:
    assert has_scalar_loss(GradientObjective(pair="sig", triplet="con", gate=False))
    assert not has_scalar_loss(GradientObjective(pair="sig", triplet="con"))


def curl(pair: str, triplet: str, variant: str) -> float:
    """Largest |d(T P-)/ds_p + d(T P+)/ds_n| on a grid of 400 points, by central differences."""
    line = torch.linspace(-0.93, 0.97, 20, dtype=torch.float64)
    pos, neg = torch.meshgrid(line, line + 0.013, indexing="ij")  # no point on the line s_n = s_p - 0.2
    h = 1e-5

    def field(s_p: Tensor, s_n: Tensor) -> tuple[Tensor, Tensor]:
        return weights_at(GradientObjective(pair=pair, triplet=triplet, variant=variant), s_p, s_n).gradient

    d_neg_by_pos = (field(pos + h, neg)[1] - field(pos - h, neg)[1]) / (2 * h)
    d_pos_by_neg = (field(pos, neg + h)[0] - field(pos, neg - h)[0]) / (2 * h)
    return float((d_neg_by_pos - d_pos_by_neg).abs().max())


@pytest.mark.parametrize(("pair", "triplet"), PAPER_GRID)
def test_the_curl_table(pair: str, triplet: str) -> None:
    """A Heaviside has zero curl between its jumps; only the loops of the paper variant see it."""
    value = curl(pair, triplet, "released")
    if f"{pair}/{triplet}" in RELEASED:
        assert value < 1e-7
    else:
        assert value > 0.5
    if triplet == "con":
        assert curl(pair, triplet, "paper") < 1e-7
