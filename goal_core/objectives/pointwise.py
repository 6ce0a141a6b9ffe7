"""An objective at single points (s_p, s_n): per triplet it is a field (-T P+, T P-), relative sets held fixed."""

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
