"""The results folder, the only truth about what has been trained: what it holds and who may write to it."""

from goal_sweep.goal_core.checkpoints.names import BEST, LAST
from goal_sweep.runners.store.attempts import Attempt, counted_failures
from goal_sweep.runners.store.storage import PATIENCE_S, ExpiredCredentialsError
from goal_sweep.runners.store.store import State, Store, TrainingStatus, bucket_of, local_root, status_of
from goal_sweep.runners.store.training import LOG, ClaimedError, ClaimLostError, TrainingFolder
