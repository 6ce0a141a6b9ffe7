"""The names of the tags and metrics that goal-sweep writes to MLflow and `analysis` reads.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep
    child run per cell, stage   goal.role = cell, found again by goal.stage_key; of a search, goal.role = candidate
"""

from __future__ import annotations

PARENT_RUN = "mlflow.parentRunId"
USER = "mlflow.user"
SOURCE_NAME, SOURCE_TYPE, SOURCE_COMMIT = "mlflow.source.name", "mlflow.source.type", "mlflow.source.git.commit"
"""MLflow's own tags, which its page shows as "Created by" and "Source"."""
DATASET_USE = "mlflow.data.context"

ROLE = "goal.role"
ROLE_SWEEP = "sweep"
ROLE_CELL = "cell"
ROLE_CANDIDATE = "candidate"
"""A training of a candidate of a search. It has no number of the test split."""

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
"""``pair/triplet``, by which runs can be grouped."""
OBJECTIVE_KEY = "goal.objective_key"
"""Hash of the objective with all its parameters."""
SETTINGS_KEY = "goal.settings_key"
"""Hash of every setting except the objective and the seed. Runs of one block that differ in it are not comparable."""
VARIANT = "goal.variant"
POINT = "goal.point"
"""For a training of a sweep with axes: its values, such as ``tau * lr 0.0002``; `ANY_VALUE` where it needs none."""
ANY_VALUE = "*"
CANDIDATE = "goal.candidate"
"""For a candidate's run: its number, from 0. Several trainings have it: each stage, each seed, and each part of a
stage after which candidates are compared."""
GRID = "goal.grid"
"""For a run of a sweep that tunes: ``default``, ``tuned``, or ``default,tuned`` where the choice was the default; or
`NO_GRID`."""
NO_GRID = "former"
"""For a run of an earlier choice, which is in no grid of the sweep any more."""
STATUS = "goal.status"
REASON = "goal.reason"
GIT_COMMIT = "goal.git_commit"
GIT_DIFF = "goal.git_diff"
"""For a run of a modified source tree: the first 12 hex digits of the SHA-256 of the uncommitted changes."""
DATA_FINGERPRINT = "goal.data_fingerprint"
IMPORTED = "goal.imported"
"""For a run whose numbers came from an archive: its name and digest. Nobody here computed or verified them."""
BELOW_WARMUP = "goal.below_warmup"
"""For a run that ended clearly below its own warm-up: both numbers (see `goal_core.training.below_warmup`)."""
WEAK = "goal.weak_objective"
"""For a run whose objective was weak beside matching: in how many epochs (see `goal_core.training.weak_objective`)."""
STACKED = "goal.stacked"
"""For a run whose heads trained in a stack with those of other cells: the share of its steps, at most 1."""
NONFINITE = "goal.nonfinite"
"""For a run with metrics that were NaN or infinite: a JSON list of them as ``metric@step``. They are not logged."""

LOG = "goal.log"
"""Path of the training's log in the results folder. It is relative, so that it stays right when the folder moves."""
CHECKPOINT = "goal.checkpoint"
"""Path of the best weights, likewise, once the training is done; absent where the results were imported without."""
TRIPLETS = "goal.triplets"
"""SHA-256 of the triplet record among the run's artifacts."""
TRIPLETS_FOLDER = "training"
"""Artifact folder of the triplet record, `triplets.npz`."""

CELL_TAGS = (
    *(ROLE, CELL, STAGE, STAGE_KEY, PAIR, TRIPLET, SEED, BACKBONE, FRAMEWORK, DATASET, VARIANT),
    *(OBJECTIVE, OBJECTIVE_KEY, SETTINGS_KEY, STATUS, GIT_COMMIT, DATA_FINGERPRINT),
)
"""Tags of every training's run by which it is found and counted. It also has `goal.log` and MLflow's own tags. It may
have `goal.reason` (if it failed), `goal.git_diff`, `goal.nonfinite`, `goal.below_warmup`, `goal.stacked`,
`goal.weak_objective`, `goal.imported`, `goal.candidate` or `goal.grid` (in a sweep that tunes), `goal.checkpoint` (once
it is done) and `goal.triplets` (once its triplet record is attached)."""

SWEEP = "goal.sweep"
STORE = "goal.store"
"""Where the results folder was when a driver last wrote the parent run."""
SEEDS = "goal.seeds"
"""JSON list of the sweep's seeds."""
OBJECTIVES = "goal.objectives"
"""JSON list of the sweep's objectives as ``pair/triplet``."""
STAGES = "goal.stages"
"""JSON list of the names of the sweep's stages."""

OBJECTIVE_KEYS = "goal.objective_keys"
"""JSON list of the objectives' keys, in the order of `goal.objectives`; of all their keys where axes give an objective
several."""
SETTINGS_KEYS = "goal.settings_keys"
"""JSON list of the sweep's settings keys, one for each backbone and stage, with axes also for each of their points."""
BUDGET = "goal.budget"
"""Of a sweep that tunes: the candidates of each objective that it asks for."""
AXES = "goal.axes"
"""For a sweep with axes: in JSON, ``axes``, each with its ``name``, its ``stage`` (empty for the objectives') and the
``values`` as `goal.point` writes them, and the number of ``trainings``. The lists of keys above then
continue in ``TAG.2``, ``TAG.3`` where one tag is too short."""

TRAIL = "goal.tuning"
"""For a sweep that tunes: SHA-256 of the trail of its search among the parent run's artifacts, once it is over."""
TRAIL_FILE = "tuning.json"
"""Artifact of the parent run: what the search tried and chose (docs/tuning.md)."""

SWEEP_TAGS = (ROLE, SWEEP, SEEDS, OBJECTIVES, STAGES, OBJECTIVE_KEYS, SETTINGS_KEYS, DATA_FINGERPRINT)
"""Tags of the parent run that `analysis` reads. It also has `goal.store`, and may have `goal.axes` and
`goal.tuning`."""

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
STATUSES = (WAITING, RUNNING, DONE, FAILED)

VAL_PREFIX = "val/"
EPOCH_PREFIXES = ("train/", VAL_PREFIX, "time/")
"""Metrics with step = epoch."""
TEST_PREFIX = "test/"
"""Metrics of the best epoch's weights on the test split; step = that epoch."""
SELECTED_PREFIX = "selected/val_"
"""The same epoch's metrics on the val split, so that runs ranked by val show the test metrics of the same weights."""
SELECTED_RSUM = f"{SELECTED_PREFIX}rsum"
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
"""Metrics that every `val/` and `test/` has at least: recalls in percent, and their sum `rsum`."""
