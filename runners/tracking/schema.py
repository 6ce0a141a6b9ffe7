"""The names of the tags and metrics that goal-sweep writes to MLflow, for people to browse. Nothing reads them back.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep; its artifacts are the results table and the report
    run per objective           goal.role = mean; the mean and the spread over its seeds
    child run per training      found again by goal.stage_key; goal.role = report, or candidate for one of a search
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PARENT_RUN: Final = "mlflow.parentRunId"
SOURCE: Final = {"mlflow.source.name": "goal-sweep launch", "mlflow.source.type": "LOCAL"}
"""MLflow's own tags, which its page shows as "Source"."""
KIND: Final = {"mlflow.experimentKind": "custom_model_development"}
"""MLflow's tag of an experiment whose page shows runs; it shows others as traces of language models."""

SWEEP: Final = "goal.sweep"
"""The sweep's name, on its experiment and its parent run."""
STORE_ID, STORE = "goal.store_id", "goal.store"
"""Of the parent run: the store whose results the runs show, and where it was when it wrote them first."""
TABLE: Final = "goal.results"
"""Of the parent run: SHA-256 of the results table among its artifacts."""
ROLE: Final = "goal.role"
ROLE_SWEEP: Final = "sweep"
ROLE_MEAN: Final = "mean"
"""The role of a run that shows the mean and the spread of an objective over its seeds."""
SEEDS: Final = "goal.seeds"
"""Of such a run: how many seeds are finished, of how many, as in ``2 of 3``."""
FORMER: Final = "former"
"""The role of a run whose training the sweep no longer asks for, because a setting, the data or a choice changed."""
STAGE_KEY: Final = "goal.stage_key"
STATUS: Final = "goal.status"
OBJECTIVE: Final = "objective"
"""The parameter ``pair/triplet``, by which runs can be grouped."""
GRID, STAGE, DATASET = "goal.grid", "goal.stage", "goal.dataset"
CHECKPOINT: Final = "goal.checkpoint"
SHOWN: Final = "goal.shown"
"""Digest of what the run shows. A run with the digest of its row in the results table needs no change."""

COLUMNS_OF_TAGS: Final[Mapping[str, str]] = {
    "goal.cell": "cell",
    STAGE: "stage",
    STAGE_KEY: "training",
    "goal.pair": "pair",
    "goal.triplet": "triplet",
    "goal.seed": "seed",
    "goal.backbone": "backbone",
    "goal.framework": "framework",
    DATASET: "dataset",
    STATUS: "status",
    "goal.git_commit": "git_commit",
    "goal.data_fingerprint": "data_fingerprint",
    ROLE: "role",
    "goal.variant": "variant",
    "goal.point": "point",
    GRID: "grid",
    "goal.reason": "reason",
    "goal.imported": "imported",
    CHECKPOINT: "checkpoint",
}
"""The tags of a training's run, each with its column of the results table. The last seven are what views group and
filter by, and what must be said beside a number; those that are empty are left out."""

VIEW: Final = "mlflow.sharedViewState.goal-"
"""Prefix of the tags of an experiment that are saved views of its runs; a number follows."""

SELECTED: Final = "selected/val_"
"""Prefix of the selected epoch's metrics on the val split, so that ranking runs by val and reading their test metrics
speaks of the same weights."""
