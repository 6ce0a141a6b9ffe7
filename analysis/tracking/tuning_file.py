"""Finds the trail of a tuned sweep among the artifacts of its parent run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from analysis.errors import AnalysisError, first_line
from analysis.run_schema import TUNING_ARTIFACT
from analysis.tracking.places import artifact_place
from analysis.tuning import Tuning, parse_tuning


def fetch_tuning(tracking_uri: str, parent: Any) -> Tuning | None:
    """The trail and the choices of a sweep.

    Args:
        tracking_uri: MLflow tracking URI.
        parent: the sweep's parent run.

    Returns:
        None for a sweep without `tune`, and for one that has not chosen yet.

    Raises:
        AnalysisError: the file cannot be read, is damaged or of a newer format.
    """
    where = f"{TUNING_ARTIFACT} of run {parent.info.run_id}"
    address = artifact_place(tracking_uri, parent.info.artifact_uri or "")
    try:
        repository = get_artifact_repository(address, tracking_uri=tracking_uri)
        if TUNING_ARTIFACT not in {item.path for item in repository.list_artifacts()}:
            return None
        with TemporaryDirectory(prefix="goal-sweep-") as folder:
            content = Path(repository.download_artifacts(TUNING_ARTIFACT, folder)).read_bytes()
    except Exception as error:  # each artifact store raises the errors of its own library
        raise AnalysisError(f"{where} cannot be read: {first_line(error)[:200]}") from error
    return parse_tuning(content, where)
