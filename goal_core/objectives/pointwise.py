"""An objective at single points (s_p, s_n), for plots, and whether it is the gradient of some loss.

Per triplet an objective is a vector field F(s_p, s_n) = (-T P+, T P-). F is the gradient of a function exactly if its
work around every closed loop is zero; relative sets count as constants of the step. Unlike a curl at points, loops also
detect the jump of a Heaviside weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.mining.relative_sets import SummedSet
from goal_sweep.goal_core.objectives.triplets import RelativeSet, Triplets

OTHER_POSITIVES: Final = (0.35, 0.55, 0.7)
OTHER_NEGATIVES: Final = (-0.1, 0.05, 0.3)
"""Relative similarities for weights that use them, the same at every point."""

POINTS_PER_SIDE: Final = 4096
NUM_LOOPS: Final = 24
THRESHOLD: Final = 1e-3
"""Relative work above which the field has no potential. A jump between two points adds a quadrature error of about
1 / POINTS_PER_SIDE = 2.4e-4; the smallest true work among the 15 is above 1e-2."""


class PointWeights(NamedTuple):
    """The weights at given similarities; all of the shape of the points."""

    triplet: Tensor
    """T."""
    pos: Tensor
    """P+."""
    neg: Tensor
    """P-."""

    @property
    def gradient(self) -> tuple[Tensor, Tensor]:
        """dL/ds_p = -T P+ and dL/ds_n = T P-."""
        return -self.triplet * self.pos, self.triplet * self.neg


class _FixedSet(SummedSet):
    """Relative similarities that are the same for every anchor."""

    def __init__(self, selected_A: Tensor, members: Sequence[float]) -> None:
        self._gap_AK = selected_A[:, None] - torch.tensor(members).to(selected_A)

    def _sum(self, transform: Callable[[Tensor], Tensor]) -> Tensor:
        return transform(self._gap_AK.clone()).sum(1)


class _FixedSets(NamedTuple):
    """The sets at single points, whatever the thresholds."""

    pos: Tensor
    neg: Tensor

    def positives(self, *, eps: float, strict: bool) -> RelativeSet:
        return _FixedSet(self.pos, OTHER_POSITIVES)

    def negatives(self, *, eps: float, strict: bool) -> RelativeSet:
        return _FixedSet(self.neg, OTHER_NEGATIVES)


def weights_at(objective: GradientObjective, pos: Tensor, neg: Tensor) -> PointWeights:
    """The weights of single triplets of similarities of any one shape, the relative sets held fixed."""
    pos_A, neg_A = pos.flatten(), neg.flatten()
    triplets = Triplets(pos=pos_A, neg=neg_A, sets=_FixedSets(pos_A, neg_A))
    weights = objective.triplet_weight(triplets), *objective.pair_weight(triplets)
    return PointWeights(*(weight_A.view_as(pos) for weight_A in weights))


def circulation(objective: GradientObjective) -> float:
    """The largest |work| / (perimeter x largest |F|) of an objective's field around squares in the (s_p, s_n) plane."""
    pos_L4P, neg_L4P, side_L = _square_loops()
    d_pos, d_neg = weights_at(objective, pos_L4P, neg_L4P).gradient
    # Sides in order: bottom (+s_p), right (+s_n), top (-s_p), left (-s_n).
    work_L4 = torch.stack((d_pos[:, 0], d_neg[:, 1], -d_pos[:, 2], -d_neg[:, 3]), 1).mean(2) * side_L[:, None]
    strongest_L = torch.hypot(d_pos, d_neg).flatten(1).amax(1)
    return float((work_L4.sum(1).abs() / (4 * side_L * strongest_L).clamp(min=1e-300)).max())


def has_scalar_loss(objective: GradientObjective) -> bool:
    """Whether some loss of (s_p, s_n) has the objective as its gradient."""
    return circulation(objective) < THRESHOLD


def _square_loops() -> tuple[Tensor, Tensor, Tensor]:
    """Midpoints along the four sides of squares of many sizes and positions, and the lengths of the sides."""
    generator = torch.Generator().manual_seed(0)
    left_L, bottom_L, share_L = torch.rand(3, NUM_LOOPS, generator=generator, dtype=torch.float64)
    side_L = 0.3 + 0.9 * share_L
    left_L, bottom_L = -1 + left_L * (2 - side_L), -1 + bottom_L * (2 - side_L)
    along_P = (torch.arange(POINTS_PER_SIDE, dtype=torch.float64) + 0.5) / POINTS_PER_SIDE
    zero_P, one_P = torch.zeros_like(along_P), torch.ones_like(along_P)
    unit_pos_4P = torch.stack((along_P, one_P, along_P, zero_P))
    unit_neg_4P = torch.stack((zero_P, along_P, one_P, along_P))
    pos_L4P = left_L[:, None, None] + side_L[:, None, None] * unit_pos_4P
    neg_L4P = bottom_L[:, None, None] + side_L[:, None, None] * unit_neg_4P
    return pos_L4P, neg_L4P, side_L
