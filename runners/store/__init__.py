"""The results folder, the source of truth about what has been trained: what it holds and who may write to it.

`runners.launch`, `runners.execution`, `runners.tracking` and `runners.cli` import it. It imports none of them.
"""

from goal_sweep.goal_core.checkpoints import BEST, LAST
from goal_sweep.runners.store.leases.heartbeat import Heartbeat, LeaseHeldError
from goal_sweep.runners.store.leases.lease import LeaseLostError
from goal_sweep.runners.store.records.attempts import Attempt, AttemptFolder, Outcome, charged_failures, was_cut_off
from goal_sweep.runners.store.records.result_content import METRICS, RESULT
from goal_sweep.runners.store.storage.folders import PATIENCE_S, ExpiredCredentialsError
from goal_sweep.runners.store.storage.place import local_root
from goal_sweep.runners.store.store import Store
from goal_sweep.runners.store.trainings.files import LOG
from goal_sweep.runners.store.trainings.folder import AlreadyDoneError, TrainingFolder
from goal_sweep.runners.store.trainings.status import State, TrainingStatus

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
    "local_root",
    "was_cut_off",
]
