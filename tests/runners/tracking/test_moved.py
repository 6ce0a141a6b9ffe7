"""Artifact addresses in the database of a folder that was copied or moved."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from runners.tracking.moved import correct_addresses
from tests.helpers.mlflow_cases import database

pytestmark = pytest.mark.integration


@pytest.fixture
def original(empty_database: Path, tmp_path: Path) -> Path:
    """A sweep with a run and a model, one whose artifacts are on a server, and an experiment that is no sweep."""
    folder = tmp_path / "my results"
    client = MlflowClient(database(empty_database, folder))
    places = {"s": (folder / "artifacts" / "s").as_uri(), "far": "s3://bucket/far", "other": "/data/other"}
    for name, place in places.items():
        tags = {} if name == "other" else {"goal.sweep": name}
        experiment = client.create_experiment(name, artifact_location=place, tags=tags)
        run = client.create_run(experiment)
        client.create_logged_model(experiment, name="m", source_run_id=run.info.run_id)
    return folder


def addresses(path: Path) -> set[str]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT artifact_location FROM experiments WHERE experiment_id > 0 UNION SELECT artifact_uri FROM runs "
            "UNION SELECT artifact_location FROM logged_models"
        ).fetchall()
    return {row[0] for row in rows}


def test_addresses_of_sweeps_follow_the_database_and_no_others(original: Path, tmp_path: Path) -> None:
    before = addresses(original / "mlflow.db")
    assert correct_addresses(original / "mlflow.db") == 0
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    assert correct_addresses(copy / "mlflow.db") == 3
    assert addresses(copy / "mlflow.db") == {one.replace(original.as_uri(), copy.as_uri()) for one in before}
    assert correct_addresses(copy / "mlflow.db") == 0
    assert addresses(original / "mlflow.db") == before


def test_another_name_of_the_same_folder_is_no_other_folder(original: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(original)
    assert correct_addresses(tmp_path / "link" / "mlflow.db") == 0
