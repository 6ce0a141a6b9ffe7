"""The best cells as models in MLflow's sense: references to the checkpoints in the results folder, without weights."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from goal_core.basics.errors import first_line
from runners.tracking import schema as names
from runners.tracking.page import SweepPage
from runners.tracking.uri import TrackingError
from sweeps.results import RSUM, TEST

LOADER = "runners.tracking.model"
"""The module that loads such a model."""
BEST_ALIAS = "best"
_SELECTED = names.SELECTED + RSUM.key
_REFERENCE = "checkpoint.json"
_FORBIDDEN = re.compile(r"[/:.%\"']")
"""Characters that MLflow does not accept in a model's name."""


def publish_models(page: SweepPage, store: str, trainings: Sequence[str]) -> list[str]:
    """Let exactly these trainings have a model in MLflow, as far as they have a run with a checkpoint.

    Args:
        page: the sweep in MLflow.
        store: the results folder.
        trainings: keys of the best trainings. That with the highest selected val rsum is registered, under the
            sweep's name and `BEST_ALIAS`.

    Returns:
        The models' ids, in the order of the trainings.

    Raises:
        TrackingError: tracking cannot be written.
    """
    try:
        found = (_run_of(page, key) for key in trainings)
        wanted = {run.info.run_id: run for run in found if run is not None and run.data.tags.get(names.CHECKPOINT)}
        kept: dict[str, str] = {}
        for model in _existing(page):
            run = wanted.get(model.source_run_id)
            if run is None or model.source_run_id in kept or not _is_current(model, run):
                page.client.delete_logged_model(model.model_id)
                continue
            kept[model.source_run_id] = model.model_id
        published = {run_id: kept.get(run_id) or _publish(page, store, run) for run_id, run in wanted.items()}
        if published:
            best = max(published, key=lambda run_id: wanted[run_id].data.metrics.get(_SELECTED, -math.inf))
            _register(page, published[best], best)
        return [*published.values()]
    except (MlflowException, OSError) as error:
        raise TrackingError(f"cannot write the models of the best cells: {first_line(error)}") from error


def _run_of(page: SweepPage, training: str) -> Any:
    query = f"tags.`{names.STAGE_KEY}` = '{training}'"
    return next(iter(page.client.search_runs([page.experiment_id], query, max_results=1)), None)


def _existing(page: SweepPage) -> list[Any]:
    ours, token, models = f"tags.`{names.STAGE_KEY}` != ''", None, []
    while True:
        models_of_page = page.client.search_logged_models([page.experiment_id], filter_string=ours, page_token=token)
        models += models_of_page
        token = models_of_page.token
        if not token:
            return models


def _is_current(model: Any, run: Any) -> bool:
    """Whether a model is complete, and refers to the run's present checkpoint."""
    checkpoint = model.tags.get(names.CHECKPOINT)
    return bool(model.status == LoggedModelStatus.READY and checkpoint == run.data.tags[names.CHECKPOINT])


def _register(page: SweepPage, model: str, run_id: str) -> None:
    """Let ``models:/<sweep>@best`` be a model, and the registry name no other of the sweep."""
    client = page.client
    source = client.get_logged_model(model).artifact_location
    try:
        client.create_registered_model(page.name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = client.search_model_versions(f"name = '{page.name}'")
    own = next((one for one in versions if one.source == source), None)
    own = own or client.create_model_version(page.name, source, run_id, model_id=model)
    client.set_registered_model_alias(page.name, BEST_ALIAS, own.version)
    for other in versions:
        if other.version != own.version:
            client.delete_model_version(page.name, other.version)


def _publish(page: SweepPage, store: str, run: Any) -> str:
    client, tags, params = page.client, run.data.tags, run.data.params
    shown = (names.ROLE, names.STAGE_KEY, names.OBJECTIVE, names.STAGE, "goal.seed", names.CHECKPOINT)
    model = client.create_logged_model(
        run.info.experiment_id,
        name=_FORBIDDEN.sub("-", run.info.run_name),
        source_run_id=run.info.run_id,
        tags={tag: tags[tag] for tag in shown if tag in tags},
        params={name: params[name] for name in ("model.framework", "model.backbone") if name in params},
        model_type="image-text retrieval",
    )
    with TemporaryDirectory(prefix="goal-sweep-") as folder:
        reference = {"checkpoint": tags[names.CHECKPOINT], "store": store}
        Path(folder, _REFERENCE).write_text(json.dumps(reference, indent=1) + "\n")
        flavor = {"loader_module": LOADER, "data": _REFERENCE, "python_version": python_version()}
        described = {"flavors": {"python_function": flavor}, "model_id": model.model_id, "run_id": run.info.run_id}
        # The file is YAML, of which JSON is a part. MLflow's own writer would load all its model libraries.
        Path(folder, "MLmodel").write_text(json.dumps(described, indent=1) + "\n")
        get_artifact_repository(model.artifact_location, tracking_uri=page.uri).log_artifacts(folder)
    # The same time and step as in the run, so that the run's own history gains no point.
    point = client.get_metric_history(run.info.run_id, RSUM.test)[-1]
    values = [
        Metric(name, run.data.metrics[name], point.timestamp, point.step, model_id=model.model_id)
        for name in sorted(run.data.metrics)
        if name.startswith(TEST)
    ]
    client.log_batch(run.info.run_id, metrics=values)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, point.step)])
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)
