"""Training: one trainer, whose unit is one or more trainings of a stage side by side on one device.

`train_unit` (in train.py) leads to the training loop. Sweeps read its settings and runners call it; it sees every
other room of goal_core except `official`.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.training.config import Precision, StageConfig
    from goal_sweep.goal_core.training.doubts import below_warmup, weak_objective
    from goal_sweep.goal_core.training.files import EpochRecord, FolderFiles, TrainingFiles
    from goal_sweep.goal_core.training.plan import (
        EpochDone,
        Listener,
        TrainingDone,
        TrainingEvent,
        TrainingFailed,
        TrainingPlan,
        UnitPlan,
    )
    from goal_sweep.goal_core.training.speed import UnitSpeed, measure_speed
    from goal_sweep.goal_core.training.train import train_unit
else:
    __getattr__ = on_first_use(__name__, __file__)
