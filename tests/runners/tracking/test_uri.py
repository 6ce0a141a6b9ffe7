"""Where tracking is: locations, and the database file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from runners.tracking.client import create_database
from runners.tracking.uri import TrackingError, prepare_database, resolve_uri


def test_one_process_can_make_a_database_twice(tmp_path):
    file = tmp_path / "mlflow.db"
    for _ in range(2):
        prepare_database(file, create_database)
        with sqlite3.connect(file) as database:
            assert database.execute("select count(*) from experiments").fetchone() == (1,)
        file.unlink()
    assert not list(tmp_path.glob("*.creating*"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:///{store}/mlflow.db", "sqlite:////data/store/mlflow.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("sqlite:///x.db", "sqlite:///{cwd}/x.db"),
        ("http://host:5000", "http://host:5000"),
        ("postgresql+psycopg2://host/db", "postgresql+psycopg2://host/db"),
        ("databricks", "databricks"),
    ],
)
def test_uris_are_made_absolute(given, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(given, Path("/data/store")) == meant.replace("{cwd}", str(tmp_path))


@pytest.mark.parametrize(
    "given", ["./mlruns", "file:///x", "sqlite://", "sqlite:///:memory:", "sqlite:///", "s3://b/x", ""]
)
def test_uris_that_cannot_work_are_refused_in_one_line(given):
    with pytest.raises(TrackingError) as error:
        resolve_uri(given, Path("/data/store"))
    assert "\n" not in str(error.value)
