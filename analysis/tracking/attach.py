"""A report's files as artifacts of the sweep's MLflow run, where people browse them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from analysis.errors import AnalysisError
from analysis.report.manifest import read_manifest

ARTIFACT_FOLDER = "report"


def attach_report(tracking_uri: str, parent_run_id: str, out_dir: Path) -> tuple[str, ...]:
    """Log the report in ``out_dir`` under ``report/`` of a run, in place of the one that is there.

    New files are logged before files that only the old report had are removed, so the run is never without a report.

    Args:
        tracking_uri: MLflow tracking URI.
        parent_run_id: the sweep's parent run.
        out_dir: a folder that :func:`analysis.report.report.write_report` has written.

    Returns:
        Artifact paths of the report.

    Raises:
        AnalysisError: no report in the folder, or tracking refuses it.
    """
    names = read_manifest(out_dir)
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        before = _files(client, parent_run_id, ARTIFACT_FOLDER)
        for name in names:
            folder = PurePosixPath(ARTIFACT_FOLDER, name).parent
            client.log_artifact(parent_run_id, str(out_dir / name), artifact_path=str(folder))
        attached = tuple(str(PurePosixPath(ARTIFACT_FOLDER, name)) for name in names)
        stale = sorted(set(before) - set(attached))
        if stale:
            uri = client.get_run(parent_run_id).info.artifact_uri
            repository = get_artifact_repository(uri, tracking_uri=tracking_uri)
            for path in stale:
                repository.delete_artifacts(path)
    except (MlflowException, OSError) as error:
        raise AnalysisError(f"cannot attach the report to run {parent_run_id}: {str(error).splitlines()[0]}") from error
    return attached


def _files(client: MlflowClient, run_id: str, folder: str) -> list[str]:
    found: list[str] = []
    for item in client.list_artifacts(run_id, folder):
        found += _files(client, run_id, item.path) if item.is_dir else [item.path]
    return found
