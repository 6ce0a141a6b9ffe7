"""The results folder, the only truth about what has been trained: what it holds and who may write to it."""

from goal_sweep.goal_core.checkpoints.names import BEST as BEST
from goal_sweep.goal_core.checkpoints.names import LAST as LAST
from goal_sweep.runners.store.attempts import Attempt as Attempt
from goal_sweep.runners.store.attempts import counted_failures as counted_failures
from goal_sweep.runners.store.result_content import METRICS as METRICS
from goal_sweep.runners.store.result_content import RESULT as RESULT
from goal_sweep.runners.store.status import State as State
from goal_sweep.runners.store.status import TrainingStatus as TrainingStatus
from goal_sweep.runners.store.storage.folders import PATIENCE_S as PATIENCE_S
from goal_sweep.runners.store.storage.folders import ExpiredCredentialsError as ExpiredCredentialsError
from goal_sweep.runners.store.storage.place import local_root as local_root
from goal_sweep.runners.store.store import Store as Store
from goal_sweep.runners.store.training import LOG as LOG
from goal_sweep.runners.store.training import AlreadyDoneError as AlreadyDoneError
from goal_sweep.runners.store.training import ClaimedError as ClaimedError
from goal_sweep.runners.store.training import ClaimLostError as ClaimLostError
from goal_sweep.runners.store.training import TrainingFolder as TrainingFolder
from goal_sweep.runners.store.training import renewed as renewed
