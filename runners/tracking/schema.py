"""The names that goal-sweep writes to MLflow. `analysis` reads them by the same names.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep
    child run per cell, stage   goal.role = cell, found again by goal.stage_key
"""

from __future__ import annotations

PARENT_RUN = "mlflow.parentRunId"

ROLE = "goal.role"
ROLE_SWEEP = "sweep"
ROLE_CELL = "cell"

CELL = "goal.cell"
STAGE = "goal.stage"
STAGE_KEY = "goal.stage_key"
PAIR = "goal.pair"
TRIPLET = "goal.triplet"
SEED = "goal.seed"
BACKBONE = "goal.backbone"
FRAMEWORK = "goal.framework"
DATASET = "goal.dataset"
OBJECTIVE = "goal.objective"
"""``pair/triplet`` in one word, to group runs by."""
OBJECTIVE_KEY = "goal.objective_key"
"""Hash of the objective with all its parameters."""
SETTINGS_KEY = "goal.settings_key"
"""Hash of every setting but the objective and the seed: runs of one block that differ in it are not comparable."""
VARIANT = "goal.variant"
STATUS = "goal.status"
REASON = "goal.reason"
GIT_COMMIT = "goal.git_commit"
GIT_DIFF = "goal.git_diff"
"""On a run of a modified source tree: the first 12 hex digits of the SHA-256 of its uncommitted changes."""
DATA_FINGERPRINT = "goal.data_fingerprint"
NONFINITE = "goal.nonfinite"
"""On a run some of whose metrics were NaN or infinite: a JSON list of ``metric@step``. They are not logged."""

TRIPLETS = "goal.triplets"
"""SHA-256 of the triplet record that the run has as an artifact."""
TRIPLETS_FOLDER = "training"
"""Artifact folder of the triplet record, `triplets.npz`."""

CELL_TAGS = (
    *(ROLE, CELL, STAGE, STAGE_KEY, PAIR, TRIPLET, SEED, BACKBONE, FRAMEWORK, DATASET, VARIANT),
    *(OBJECTIVE, OBJECTIVE_KEY, SETTINGS_KEY, STATUS, GIT_COMMIT, DATA_FINGERPRINT),
)
"""Tags of every training's run. Beside them: `goal.reason` when it failed, `goal.git_diff` and `goal.nonfinite` where
they apply, and `goal.triplets` once its record is attached."""

SWEEP = "goal.sweep"
SEEDS = "goal.seeds"
"""JSON list of the seeds asked for."""
OBJECTIVES = "goal.objectives"
"""JSON list of ``pair/triplet``."""
STAGES = "goal.stages"
"""JSON list of stage names."""

OBJECTIVE_KEYS = "goal.objective_keys"
"""JSON list of the objectives' keys, in the order of `goal.objectives`."""
SETTINGS_KEYS = "goal.settings_keys"
"""JSON list of the settings asked for, one for each backbone and stage."""

SWEEP_TAGS = (ROLE, SWEEP, SEEDS, OBJECTIVES, STAGES, OBJECTIVE_KEYS, SETTINGS_KEYS, DATA_FINGERPRINT)

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
STATUSES = (WAITING, RUNNING, DONE, FAILED)

VAL_PREFIX = "val/"
EPOCH_PREFIXES = ("train/", VAL_PREFIX, "time/")
"""Metrics with step = epoch."""
TEST_PREFIX = "test/"
"""Metrics of the best epoch's weights, step = that epoch."""
SELECTED_PREFIX = "selected/val_"
"""The same epoch's metrics on the val split: to rank runs by them and read their test metrics speaks of one model."""
SELECTED_RSUM = f"{SELECTED_PREFIX}rsum"
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
"""What follows `val/` and `test/` at least; percent, except `rsum`, their sum."""
