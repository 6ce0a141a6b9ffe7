"""Checkpoint files, the description each carries of its model, and the models that training starts from.

`evaluation`, `training`, `official` and `runners` build on it. It builds on the frameworks and the data, and does not
depend on training.
"""

from goal_core.checkpoints.description import ModelDescription, TrainedModel, read_model, write_model
from goal_core.checkpoints.file import (
    BEST,
    LAST,
    TRAINING,
    best_name,
    load_module,
    optimizer_tensors,
    read_checkpoint,
    read_mapped,
    read_of_training,
    restore_optimizer,
    take_prefix,
    weights_in,
    with_prefix,
    write_checkpoint,
)
from goal_core.checkpoints.initial_model import InitialModel, check_initial_weights, initial_weights_id

__all__ = [
    "BEST",
    "LAST",
    "TRAINING",
    "InitialModel",
    "ModelDescription",
    "TrainedModel",
    "best_name",
    "check_initial_weights",
    "initial_weights_id",
    "load_module",
    "optimizer_tensors",
    "read_checkpoint",
    "read_mapped",
    "read_model",
    "read_of_training",
    "restore_optimizer",
    "take_prefix",
    "weights_in",
    "with_prefix",
    "write_checkpoint",
    "write_model",
]
