"""Training: one trainer whose unit is one or more cells side by side."""

from goal_core.training.config import Precision, StageConfig
from goal_core.training.ensemble import evaluate_ensemble
from goal_core.training.evaluate import Opened, evaluate_checkpoint, open_checkpoint
from goal_core.training.failures import CollapsedError, DivergedError
from goal_core.training.first_model import check_first_weights, first_weights_id
from goal_core.training.plan import (
    CellDone,
    CellEvent,
    CellFailed,
    CellFolder,
    CellPlan,
    EpochDone,
    EpochRecord,
    Listener,
    UnitPlan,
)
from goal_core.training.speed import UnitSpeed, measure_speed
from goal_core.training.unit import train_unit

__all__ = [
    "CellDone",
    "CellEvent",
    "CellFailed",
    "CellFolder",
    "CellPlan",
    "CollapsedError",
    "DivergedError",
    "EpochDone",
    "EpochRecord",
    "Listener",
    "Opened",
    "Precision",
    "StageConfig",
    "UnitPlan",
    "UnitSpeed",
    "check_first_weights",
    "evaluate_checkpoint",
    "evaluate_ensemble",
    "first_weights_id",
    "measure_speed",
    "open_checkpoint",
    "train_unit",
]
