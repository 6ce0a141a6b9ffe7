"""A trial of an objective with weights of one's own, before anything is trained with it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from goal_sweep.goal_core.basics.errors import ConfigError, first_line
from goal_sweep.goal_core.objectives.baselines import LOSS
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.mining import mine
from goal_sweep.goal_core.objectives.pair_weights import pair_weights
from goal_sweep.goal_core.objectives.triplet_weights import triplet_weights
from goal_sweep.goal_core.objectives.triplets import Triplets

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
        try:
            first, second = (_weights(objective, kind, mined.triplets()[0]) for _ in range(2))
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{of}: {type(error).__name__}: {first_line(error)}") from error
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
    given = objective.pair_weight(triplets) if kind == "pair" else (objective.triplet_weight(triplets),)
    if not isinstance(given, tuple) or not all(isinstance(one, Tensor) for one in given):
        raise TypeError(f"gives {type(given).__name__}, not PairWeights(pos, neg) or a tensor")
    return given
