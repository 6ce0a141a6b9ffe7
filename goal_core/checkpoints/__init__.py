"""Checkpoint files, the description each carries of its model, and the models that training starts from.

`evaluation`, `training`, `official` and `runners` build on it. It builds on the frameworks and the data, and does not
depend on training.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.checkpoints.description import ModelDescription, TrainedModel, read_model, write_model
    from goal_sweep.goal_core.checkpoints.file import (
        TRAINING,
        flat,
        load_module,
        optimizer_tensors,
        read_checkpoint,
        read_of_training,
        restore_optimizer,
        take_prefix,
        write_checkpoint,
    )
    from goal_sweep.goal_core.checkpoints.initial_model import InitialModel, check_initial_weights, trained_encoder
    from goal_sweep.goal_core.checkpoints.names import BEST, LAST, RANKS, SPARE, best_name, weights_in
else:
    __getattr__ = on_first_use(__name__, __file__)
