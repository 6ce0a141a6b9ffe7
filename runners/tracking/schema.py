"""The names of the tags and metrics that goal-sweep writes to MLflow, for people to browse.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep; its artifacts are the results table and the report
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
ROLE: Final = "goal.role"
ROLE_SWEEP: Final = "sweep"
FORMER: Final = "former"
"""The role of a run whose training the sweep no longer asks for, because a setting, the data or a choice changed."""
STAGE_KEY: Final = "goal.stage_key"
STATUS: Final = "goal.status"
OBJECTIVE: Final = "objective"
"""The parameter ``pair/triplet``, by which runs can be grouped."""

COLUMNS_OF_TAGS: Final[Mapping[str, str]] = {
    "goal.cell": "cell",
    "goal.stage": "stage",
    STAGE_KEY: "training",
    "goal.pair": "pair",
    "goal.triplet": "triplet",
    "goal.seed": "seed",
    "goal.backbone": "backbone",
    "goal.framework": "framework",
    "goal.dataset": "dataset",
    STATUS: "status",
    "goal.git_commit": "git_commit",
    "goal.data_fingerprint": "data_fingerprint",
    ROLE: "role",
    "goal.variant": "variant",
    "goal.point": "point",
    "goal.grid": "grid",
    "goal.reason": "reason",
    "goal.checkpoint": "checkpoint",
}
"""The tags of a training's run, each with its column of the results table; those that are empty are left out."""

SELECTED: Final = "selected/val_"
"""Prefix of the selected epoch's metrics on the val split, so that ranking runs by val and reading their test metrics
speaks of the same weights."""
