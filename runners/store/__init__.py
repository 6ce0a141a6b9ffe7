"""The results folder, the source of truth about what has been trained: what it holds and who may write to it.

`runners.launch`, `runners.execution`, `runners.tracking` and `runners.cli` import it. It imports none of them.
"""

from goal_core.checkpoints import BEST, LAST
from runners.store.attempts import Attempt, AttemptFolder, Outcome, charged_failures, was_cut_off
from runners.store.endings import end_attempt, forgive
from runners.store.heartbeat import Heartbeat, LeaseHeldError
from runners.store.lease import LeaseLostError
from runners.store.result_content import METRICS, RESULT
from runners.store.status import State, TrainingStatus
from runners.store.storage import PATIENCE_S, local_root
from runners.store.store import Store
from runners.store.training_files import LOG
from runners.store.training_folder import AlreadyDoneError, TrainingFolder
from runners.store.versions import digest

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
    "Heartbeat",
    "LeaseHeldError",
    "LeaseLostError",
    "Outcome",
    "State",
    "Store",
    "TrainingFolder",
    "TrainingStatus",
    "charged_failures",
    "digest",
    "end_attempt",
    "forgive",
    "local_root",
    "was_cut_off",
]
