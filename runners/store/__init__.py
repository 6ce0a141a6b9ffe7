"""The results folder, the source of truth about what has been trained: what it holds and who may write to it.

`runners.launch`, `runners.execution`, `runners.tracking` and `runners.cli` import it. It imports none of them.
"""

from goal_core.checkpoints import BEST, LAST
from runners.store.leases.heartbeat import Heartbeat, LeaseHeldError
from runners.store.leases.lease import LeaseLostError
from runners.store.records.attempts import Attempt, AttemptFolder, Outcome, charged_failures, was_cut_off
from runners.store.records.result_content import METRICS, RESULT
from runners.store.storage.folders import PATIENCE_S, ExpiredCredentialsError
from runners.store.storage.place import local_root
from runners.store.store import Store
from runners.store.trainings.files import LOG
from runners.store.trainings.folder import AlreadyDoneError, TrainingFolder
from runners.store.trainings.status import State, TrainingStatus

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
