"""The best cells as models in MLflow's sense: references to the checkpoints in the results folder, without weights."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from analysis import run_schema as schema
from analysis.errors import AnalysisError, first_line
from analysis.tracking.places import artifact_place

LOADER = "runners.tracking.model"
"""The module that loads such a model; it is part of goal-sweep, and only its name is needed here."""
_REFERENCE = "checkpoint.json"
_FORBIDDEN = re.compile(r"[/:.%\"']")
"""Characters that MLflow does not accept in a model's name."""


def publish_models(tracking_uri: str, parent_run_id: str, store: str, run_ids: Sequence[str]) -> list[str]:
    """Let exactly these runs have a model in MLflow, as far as they have a checkpoint.

    Args:
        tracking_uri: MLflow tracking URI.
        parent_run_id: the sweep's parent run.
        store: the results folder.
        run_ids: the best runs.

    Returns:
        The models' ids, in the order of the runs.

    Raises:
        AnalysisError: tracking cannot be written.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        experiment_id = client.get_run(parent_run_id).info.experiment_id
        runs = [run for run in map(client.get_run, run_ids) if run.data.tags.get(schema.TAG_CHECKPOINT)]
        wanted = {run.info.run_id: run for run in runs}
        kept: dict[str, str] = {}
        for model in _existing(client, experiment_id):
            run = wanted.get(model.source_run_id)
            if run is None or model.source_run_id in kept or not _is_current(model, run):
                client.delete_logged_model(model.model_id)
                continue
            kept[model.source_run_id] = model.model_id
        return [kept.get(run.info.run_id) or _publish(client, tracking_uri, store, run) for run in runs]
    except (MlflowException, OSError) as error:
        raise AnalysisError(f"cannot write the models of run {parent_run_id}: {first_line(error)}") from error


def _existing(client: MlflowClient, experiment_id: str) -> list[Any]:
    ours, token, found = f"tags.`{schema.TAG_ROLE}` = '{schema.ROLE_CELL}'", None, []
    while True:
        page = client.search_logged_models([experiment_id], filter_string=ours, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _is_current(model: Any, run: Any) -> bool:
    """Whether a model is complete, and refers to the run's present checkpoint."""
    checkpoint = model.tags.get(schema.TAG_CHECKPOINT)
    return bool(model.status == LoggedModelStatus.READY and checkpoint == run.data.tags[schema.TAG_CHECKPOINT])


def _publish(client: MlflowClient, tracking_uri: str, store: str, run: Any) -> str:
    tags, params = run.data.tags, run.data.params
    checkpoint = tags[schema.TAG_CHECKPOINT]
    shown = (schema.TAG_ROLE, schema.TAG_STAGE_KEY, schema.TAG_OBJECTIVE, schema.TAG_STAGE, schema.TAG_SEED)
    model = client.create_logged_model(
        run.info.experiment_id,
        name=_FORBIDDEN.sub("-", run.info.run_name),
        source_run_id=run.info.run_id,
        tags={tag: tags[tag] for tag in shown if tag in tags} | {schema.TAG_CHECKPOINT: checkpoint},
        params={name: params[name] for name in ("model.framework", "model.backbone") if name in params},
        model_type="image-text retrieval",
    )
    with TemporaryDirectory(prefix="goal-sweep-") as folder:
        reference = {"checkpoint": checkpoint, "store": store}
        Path(folder, _REFERENCE).write_text(json.dumps(reference, indent=1) + "\n")
        flavor = {"loader_module": LOADER, "data": _REFERENCE, "python_version": python_version()}
        described = {"flavors": {"python_function": flavor}, "model_id": model.model_id, "run_id": run.info.run_id}
        # The file is YAML, of which JSON is a part. MLflow's own writer would load all its model libraries.
        Path(folder, "MLmodel").write_text(json.dumps(described, indent=1) + "\n")
        place = artifact_place(tracking_uri, model.artifact_location, kept=4)
        get_artifact_repository(place, tracking_uri=tracking_uri).log_artifacts(folder)
    # The same time and step as in the run, so that the run's own history gains no point.
    point = client.get_metric_history(run.info.run_id, schema.RSUM.test)[-1]
    values = [
        Metric(name, run.data.metrics[name], point.timestamp, point.step, model_id=model.model_id)
        for name in sorted(run.data.metrics)
        if name.startswith(schema.TEST_PREFIX)
    ]
    client.log_batch(run.info.run_id, metrics=values)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, point.step)])
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    return str(model.model_id)
