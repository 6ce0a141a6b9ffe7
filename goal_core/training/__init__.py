"""Training: one trainer whose unit is one or more cells side by side."""

from goal_core.checkpoints.initial_model import check_initial_weights, initial_weights_id
from goal_core.evaluation.ensemble import evaluate_ensemble
from goal_core.evaluation.evaluate import Opened, evaluate_checkpoint, open_checkpoint
from goal_core.training.config import Precision, StageConfig
from goal_core.training.failures import CollapsedError, DivergedError
from goal_core.training.plan import (
    EpochDone,
    EpochRecord,
    Listener,
    TrainingDone,
    TrainingEvent,
    TrainingFailed,
    TrainingFiles,
    TrainingPlan,
    UnitPlan,
)
from goal_core.training.speed import UnitSpeed, measure_speed
from goal_core.training.trainer import train_unit

__all__ = [
    "CollapsedError",
    "DivergedError",
    "EpochDone",
    "EpochRecord",
    "Listener",
    "Opened",
    "Precision",
    "StageConfig",
    "TrainingDone",
    "TrainingEvent",
    "TrainingFailed",
    "TrainingFiles",
    "TrainingPlan",
    "UnitPlan",
    "UnitSpeed",
    "check_initial_weights",
    "evaluate_checkpoint",
    "evaluate_ensemble",
    "initial_weights_id",
    "measure_speed",
    "open_checkpoint",
    "train_unit",
]
