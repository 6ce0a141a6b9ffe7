"""The objectives for a training loop of one's own, and what a plugin needs to register weights; torch and numpy do."""

from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.gradient_objective import (
    GradientObjective,
    LossObjective,
    NonFiniteError,
    Objective,
    ShapeError,
)
from goal_sweep.goal_core.objectives.variants import ObjectiveInfo, list_objectives
from goal_sweep.goal_core.objectives.weights import (
    PairWeights,
    Positive,
    Triplets,
    Value,
    baselines,
    pair_weights,
    triplet_weights,
)

__all__ = [
    "GradientObjective", "LossObjective", "NonFiniteError", "Objective", "ObjectiveConfig", "ObjectiveInfo",
    "PairWeights", "Positive", "ShapeError", "Triplets", "Value", "baselines", "list_objectives", "pair_weights",
    "triplet_weights",
]  # fmt: skip
