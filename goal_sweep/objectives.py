"""The objectives for a training loop of one's own, and what a plugin needs to register weights; torch and numpy do."""

from goal_sweep.goal_core.objectives import (
    ObjectiveConfig,
    PairWeights,
    Triplets,
    baselines,
    list_objectives,
    pair_weights,
    triplet_weights,
)
from goal_sweep.goal_core.objectives.distributed import gather_batch
from goal_sweep.goal_core.objectives.gradient_objective import (
    GradientObjective,
    LossObjective,
    NonFiniteError,
    ShapeError,
)
from goal_sweep.goal_core.objectives.parameters import Positive, Value

__all__ = [
    "GradientObjective",
    "LossObjective",
    "NonFiniteError",
    "ObjectiveConfig",
    "PairWeights",
    "Positive",
    "ShapeError",
    "Triplets",
    "Value",
    "baselines",
    "gather_batch",
    "list_objectives",
    "pair_weights",
    "triplet_weights",
]
