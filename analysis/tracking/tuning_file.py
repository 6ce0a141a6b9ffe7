"""Finds the trail of a tuned sweep among the artifacts of its parent run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from analysis import run_schema as schema
from analysis.errors import AnalysisError, first_line
from analysis.tracking.places import artifact_place
from analysis.tuning import Tuning, parse_tuning


def chosen(tracking_uri: str, parent: Any, candidates: pd.DataFrame) -> Tuning | None:
    """What a sweep tried and chose.

    Args:
        tracking_uri: MLflow tracking URI.
        parent: the sweep's parent run.
        candidates: the runs of its candidates.

    Returns:
        None before the first choice, and while it tries candidates that its trail does not have, for a larger budget.

    Raises:
        AnalysisError: the file cannot be read, is damaged or of a newer format.
    """
    tuning = _fetch(tracking_uri, parent)
    if tuning is None or candidates.empty:
        return tuning
    numbers = candidates.loc[candidates["status"].isin(("waiting", "running")), "candidate"]
    known = max((len(trail.candidates) for block in tuning.blocks for trail in block.objectives), default=0)
    return None if any(number.isdigit() and int(number) >= known for number in numbers) else tuning


def stated_budget(tags: Mapping[str, str]) -> int | None:
    """The candidates per objective that the parent run states before it has chosen."""
    text = tags.get(schema.TAG_BUDGET)
    if text is not None and not text.isdigit():
        raise AnalysisError(f"tag {schema.TAG_BUDGET} of the parent run is not a number: {text!r}")
    return None if text is None else int(text)


def _fetch(tracking_uri: str, parent: Any) -> Tuning | None:
    """The trail and the choices of a sweep.

    Args:
        tracking_uri: MLflow tracking URI.
        parent: the sweep's parent run.

    Returns:
        None where there is no such file.

    Raises:
        AnalysisError: the file cannot be read, is damaged or of a newer format.
    """
    where = f"{schema.TUNING_ARTIFACT} of run {parent.info.run_id}"
    address = artifact_place(tracking_uri, parent.info.artifact_uri or "")
    try:
        repository = get_artifact_repository(address, tracking_uri=tracking_uri)
        if schema.TUNING_ARTIFACT not in {item.path for item in repository.list_artifacts()}:
            return None
        with TemporaryDirectory(prefix="goal-sweep-") as folder:
            content = Path(repository.download_artifacts(schema.TUNING_ARTIFACT, folder)).read_bytes()
    except Exception as error:  # each artifact store raises the errors of its own library
        raise AnalysisError(f"{where} cannot be read: {first_line(error)[:200]}") from error
    return parse_tuning(content, where)
