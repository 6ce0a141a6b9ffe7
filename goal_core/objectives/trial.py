"""Weights outside of training: a trial of an objective with weights of one's own, and any objective at single points.

At single points (s_p, s_n) an objective is, per triplet, a field (-T P+, T P-), relative sets held fixed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from goal_sweep.goal_core.basics.errors import ConfigError, first_line
from goal_sweep.goal_core.basics.registry import place_in
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.mining import SummedSet, mine
from goal_sweep.goal_core.objectives.variants import LOSS
from goal_sweep.goal_core.objectives.weights import (
    RelativeSet,
    Triplets,
    pair_weights,
    parameter_problem,
    triplet_weights,
)

_PAIRS, _DIM = 6, 8


def try_objective(config: ObjectiveConfig, *, shipped: bool = False) -> None:
    """Compute the weights of a small batch, if a plugin defines one of them, or else of ``shipped`` ones, too.

    A `ConfigError` names the plugin, and what is wrong.
    """
    if config.triplet == LOSS:
        return
    objective, generator = config.build(), torch.Generator().manual_seed(0)
    images_ND, texts_ND = (normalize(torch.randn(_PAIRS, _DIM, generator=generator)) for _ in range(2))
    mined = mine(images_ND, texts_ND, None)
    as_mined = torch.stack([mined.pos, mined.neg])
    for entry, kind in ((triplet_weights[config.triplet], "triplet"), (pair_weights[config.pair], "pair")):
        if not entry.plugin and not shipped:
            continue
        of = f"plugin {entry.plugin}: {entry.name}" if entry.plugin else entry.name
        for parameter, default in entry.parameters.items():
            if said := parameter_problem(entry.function, parameter, default):
                raise ConfigError(f"{of}: by default, {said}")
        try:
            first, second = (_weights(objective, kind, mined.triplets()[0]) for _ in range(2))
        except (Exception, SystemExit) as error:
            place = place_in(error)
            where = f"{place}{entry.name}" if place else of
            raise ConfigError(f"{where}: {type(error).__name__}: {first_line(error)}") from error
        if not torch.equal(as_mined, torch.stack([mined.pos, mined.neg])):
            raise ConfigError(f"{of}: changes the similarities that it is given; compute new tensors")
        for one, again in zip(first, second, strict=True):
            if one.shape != mined.pos.shape or one.dtype != mined.pos.dtype:
                wanted = f"{tuple(mined.pos.shape)} {mined.pos.dtype}"
                raise ConfigError(f"{of}: gives {tuple(one.shape)} {one.dtype} for triplets of {wanted}")
            if not one.isfinite().all():
                raise ConfigError(f"{of}: gives NaN or infinity")
            if not torch.equal(one, again):
                raise ConfigError(f"{of}: gives other numbers when it is called again")


def _weights(objective: GradientObjective, kind: str, triplets: Triplets) -> tuple[Tensor, ...]:
    given: Any = objective.pair_weight(triplets) if kind == "pair" else objective.triplet_weight(triplets)
    weights, wanted = (given, "PairWeights(pos, neg) of tensors") if kind == "pair" else ((given,), "a tensor")
    if not isinstance(weights, tuple) or not all(isinstance(one, Tensor) for one in weights):
        found = ", ".join(type(one).__name__ for one in (given if isinstance(given, tuple) else (given,)))
        raise TypeError(f"gives {found}, not {wanted}")
    return weights


OTHER_POSITIVES: Final = (0.35, 0.55, 0.7)
OTHER_NEGATIVES: Final = (-0.1, 0.05, 0.3)
"""Relative similarities for weights that use them, the same at every point."""


class PointWeights(NamedTuple):
    """The weights T, P+ and P- at given similarities; all of the shape of the points."""

    triplet: Tensor
    pos: Tensor
    neg: Tensor

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
