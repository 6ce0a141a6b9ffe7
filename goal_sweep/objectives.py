"""The objectives for a training loop of one's own, and what a plugin needs to register weights; torch and numpy do."""

from goal_sweep.goal_core.objectives.arguments import Positive, Triplets, Value
from goal_sweep.goal_core.objectives.baselines import baselines
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.gradient_objective import (
    GradientObjective,
    LossObjective,
    NonFiniteError,
    Objective,
    ShapeError,
)
from goal_sweep.goal_core.objectives.pair_weights import PairWeights, pair_weights
from goal_sweep.goal_core.objectives.triplet_weights import triplet_weights
from goal_sweep.goal_core.objectives.variants import ObjectiveInfo, list_objectives

__all__ = [
    "GradientObjective",
    "LossObjective",
    "NonFiniteError",
    "Objective",
    "ObjectiveConfig",
    "ObjectiveInfo",
    "PairWeights",
    "Positive",
    "ShapeError",
    "Triplets",
    "Value",
    "baselines",
    "list_objectives",
    "pair_weights",
    "triplet_weights",
]
