"""Checkpoint files, the description each carries of its model, and the models that training starts from."""

from goal_sweep.goal_core.checkpoints.names import LAST, RANKS, best_name, weights_in
