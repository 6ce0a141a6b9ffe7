"""The results folder, the source of truth about what has been trained: what it holds and who may write to it.

`runners.launch`, `runners.execution`, `runners.tracking` and `runners.cli` import it. It imports none of them.
"""

from goal_core.checkpoints import BEST, LAST
from runners.store.leases import Heartbeat, LeaseHeldError, LeaseLostError
from runners.store.records import METRICS, RESULT, Attempt, AttemptFolder, Outcome, charged_failures, was_cut_off
from runners.store.storage import PATIENCE_S, ExpiredCredentialsError, local_root
from runners.store.store import Store
from runners.store.trainings import (
    LOG,
    AlreadyDoneError,
    State,
    TrainingFolder,
    TrainingStatus,
    end_attempt,
    forgive,
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
    "AttemptFolder",
    "ExpiredCredentialsError",
    "Heartbeat",
    "LeaseHeldError",
    "LeaseLostError",
    "Outcome",
    "State",
    "Store",
    "TrainingFolder",
    "TrainingStatus",
    "charged_failures",
    "end_attempt",
    "forgive",
    "local_root",
    "was_cut_off",
]
