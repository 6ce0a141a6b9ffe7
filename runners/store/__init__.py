"""The results folder, the only truth about what has been trained: what it holds and who may write to it."""

from goal_sweep.goal_core.checkpoints.names import BEST, LAST
from goal_sweep.runners.store.attempts import Attempt, counted_failures
from goal_sweep.runners.store.result_content import METRICS, RESULT
from goal_sweep.runners.store.status import State, TrainingStatus
from goal_sweep.runners.store.storage.folders import PATIENCE_S, ExpiredCredentialsError
from goal_sweep.runners.store.storage.place import local_root
from goal_sweep.runners.store.store import Store
from goal_sweep.runners.store.training import (
    LOG,
    AlreadyDoneError,
    ClaimedError,
    ClaimLostError,
    TrainingFolder,
    renewed,
)

__all__ = [
    "BEST",
    "LAST",
    "LOG",
    "METRICS",
    "PATIENCE_S",
    "RESULT",
    "AlreadyDoneError",
    "Attempt",
    "ClaimLostError",
    "ClaimedError",
    "ExpiredCredentialsError",
    "State",
    "Store",
    "TrainingFolder",
    "TrainingStatus",
    "counted_failures",
    "local_root",
    "renewed",
]
