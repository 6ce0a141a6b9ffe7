"""Training: one trainer, whose unit is one or more trainings of a stage side by side on one device.

`train_unit` (in train.py) leads to the training loop.
"""

from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.goal_core.training.diagnostics import below_warmup, weak_objective
from goal_sweep.goal_core.training.plan import (
    Callback,
    EpochDone,
    FolderFiles,
    TrainingDone,
    TrainingEvent,
    TrainingFailed,
    TrainingPlan,
    UnitPlan,
)
