"""An objective at single points (s_p, s_n), for plots and for the test whether a loss exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from goal_core.objectives.pair_weights import pair_weights
from goal_core.objectives.parameters import Value
from goal_core.objectives.triplet_weights import triplet_weights
from goal_core.objectives.triplets import FixedSets, Triplets
from goal_core.objectives.variants import resolve_parameters

OTHER_POSITIVES: Final = (0.35, 0.55, 0.7)
OTHER_NEGATIVES: Final = (-0.1, 0.05, 0.3)
"""Relative similarities for weights that use them, the same at every point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointWeights:
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


def weights_at(
    pos: Tensor,
    neg: Tensor,
    *,
    pair: str,
    triplet: str,
    variant: str = "paper",
    params: Mapping[str, Value] | None = None,
    other_positives: Sequence[float] = OTHER_POSITIVES,
    other_negatives: Sequence[float] = OTHER_NEGATIVES,
) -> PointWeights:
    """The weights of single triplets, the relative sets held fixed.

    Args:
        pos: similarities s_p, any shape, floating.
        neg: similarities s_n, the same shape.
        pair: name of a pair weight.
        triplet: name of a triplet weight.
        variant: one of `VARIANTS`.
        params: parameters that differ from the variant's.
        other_positives: the members of every set P, at least one.
        other_negatives: the members of every set N, at least one.

    Returns:
        T, P+ and P-, shaped as the points.

    Raises:
        UnknownNameError: no such pair or triplet weight.
        ConfigError: an unknown variant or parameter, or a value out of range.
    """
    values = resolve_parameters(pair, triplet, variant, params or {})
    pos_A, neg_A = pos.flatten(), neg.flatten()
    sets = FixedSets(pos_A, neg_A, torch.tensor(other_positives), torch.tensor(other_negatives))
    triplets = Triplets(pos=pos_A, neg=neg_A, sets=sets)
    for_triplet, for_pair = triplet_weights[triplet], pair_weights[pair]
    triplet_A = for_triplet.function(triplets, **{name: values[name] for name in for_triplet.parameters})
    pair_A = for_pair.function(triplets, **{name: values[name] for name in for_pair.parameters})
    return PointWeights(triplet=triplet_A.view_as(pos), pos=pair_A.pos.view_as(pos), neg=pair_A.neg.view_as(pos))
