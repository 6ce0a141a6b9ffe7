"""The best cell as a model in MLflow's sense: a reference to the checkpoint in the results folder, without weights."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory

from mlflow.exceptions import MlflowException

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.page import SweepPage
from goal_sweep.runners.tracking.uri import TrackingError
from goal_sweep.sweeps.results import RSUM

LOADER = "goal_sweep.runners.tracking.model"
"""The module that loads such a model."""
BEST_ALIAS = "best"
_FOLDER, _REFERENCE = "model", "checkpoint.json"
"""The artifacts of a run that are a model of it, and the file among them that names the checkpoint."""


def publish_best(page: SweepPage, store: str, trainings: Sequence[str]) -> None:
    """Let ``models:/SWEEP@best`` be the best of some trainings, and the registry name no other of the sweep.

    Args:
        page: the sweep in MLflow.
        store: the results folder.
        trainings: keys of trainings. That with the highest selected val rsum counts, of those whose run has a
            checkpoint; without any, nothing is changed.

    Raises:
        TrackingError: tracking cannot be written.
    """
    client = page.client
    try:
        queries = (f"tags.`{names.STAGE_KEY}` = '{key}'" for key in trainings)
        runs = [run for query in queries for run in client.search_runs([page.experiment_id], query, max_results=1)]
        runs = [run for run in runs if run.data.tags.get(names.CHECKPOINT)]
        if not runs:
            return
        best = max(runs, key=lambda run: run.data.metrics.get(names.SELECTED + RSUM.key, -math.inf))
        shown = {names.CHECKPOINT: best.data.tags[names.CHECKPOINT], names.STORE: store}
        versions = client.search_model_versions(f"name = '{page.name}'")
        own = next((one for one in versions if (one.run_id, one.tags) == (best.info.run_id, shown)), None)
        if own is None:
            _write(page, best.info.run_id, shown)
            if not versions:
                _register(page)
            source = f"{best.info.artifact_uri}/{_FOLDER}"
            own = client.create_model_version(page.name, source, best.info.run_id, tags=shown)
        client.set_registered_model_alias(page.name, BEST_ALIAS, own.version)
        for other in versions:
            if other.version != own.version:
                client.delete_model_version(page.name, other.version)
    except (MlflowException, OSError) as error:
        raise TrackingError(f"cannot write the model of the best cell: {first_line(error)}") from error


def _register(page: SweepPage) -> None:
    try:
        page.client.create_registered_model(page.name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _write(page: SweepPage, run_id: str, shown: dict[str, str]) -> None:
    """Write a model among the artifacts of its run."""
    with TemporaryDirectory(prefix="goal-sweep-") as folder:
        reference = {"checkpoint": shown[names.CHECKPOINT], "store": shown[names.STORE]}
        Path(folder, _REFERENCE).write_text(json.dumps(reference, indent=1) + "\n")
        flavor = {"loader_module": LOADER, "data": _REFERENCE, "python_version": python_version()}
        # The file is YAML, of which JSON is a part. MLflow's own writer would load all its model libraries.
        described = {"flavors": {"python_function": flavor}, "run_id": run_id}
        Path(folder, "MLmodel").write_text(json.dumps(described, indent=1) + "\n")
        page.client.log_artifacts(run_id, folder, _FOLDER)
