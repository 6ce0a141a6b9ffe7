"""Which of the objectives are gradients of a loss."""

import pytest
import torch

from goal_sweep.goal_core.objectives import VARIANTS, list_objectives
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.trial import weights_at
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


def circulation(pair: str, triplet: str, variant: str) -> float:
    """The largest |work| / (perimeter x largest |F|) of the field around squares in the (s_p, s_n) plane."""
    objective = GradientObjective(pair=pair, triplet=triplet, variant=variant)
    left_L, bottom_L, share_L = torch.rand(3, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    side_L = 0.3 + 0.9 * share_L
    left_L, bottom_L = -1 + left_L * (2 - side_L), -1 + bottom_L * (2 - side_L)
    along_P = (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
    zero_P, one_P = torch.zeros_like(along_P), torch.ones_like(along_P)
    # Midpoints along the sides: bottom (+s_p), right (+s_n), top (-s_p), left (-s_n).
    unit_pos_4P = torch.stack((along_P, one_P, along_P, zero_P))
    unit_neg_4P = torch.stack((zero_P, along_P, one_P, along_P))
    pos_L4P = left_L[:, None, None] + side_L[:, None, None] * unit_pos_4P
    neg_L4P = bottom_L[:, None, None] + side_L[:, None, None] * unit_neg_4P
    d_pos, d_neg = weights_at(objective, pos_L4P, neg_L4P).gradient
    work_L4 = torch.stack((d_pos[:, 0], d_neg[:, 1], -d_pos[:, 2], -d_neg[:, 3]), 1).mean(2) * side_L[:, None]
    strongest_L = torch.hypot(d_pos, d_neg).flatten(1).amax(1)
    return float((work_L4.sum(1).abs() / (4 * side_L * strongest_L).clamp(min=1e-300)).max())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("pair", "triplet"), PAPER_GRID)
def test_the_verdict_is_not_close(pair: str, triplet: str, variant: str) -> None:
    work = circulation(pair, triplet, variant)
    if f"{pair}/{triplet}" in (PAPER if variant == "paper" else RELEASED):
        assert work < 1e-6
    else:
        assert work > 1e-2
