"""Where tracking is: locations, and the database file."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import make_url

from goal_sweep.runners.tracking.experiment import connect, create_database, ensure_experiment
from goal_sweep.runners.tracking.uri import TrackingError, prepare_database, read_only, resolve_uri, sqlite_file


def test_of_those_who_need_a_database_at_once_one_makes_it(tmp_path):
    """Two who create the tables of one file leave a broken one."""
    file, made = tmp_path / "new" / "mlflow.db", []

    def create(path):
        assert path != file  # a half-made one never has the final name
        time.sleep(0.05)
        path.write_bytes(b"SQLite format 3\x00")
        made.append(path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: prepare_database(file, create), range(4)))
    assert len(made) == 1
    assert {path.name for path in file.parent.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


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


def test_a_database_may_lie_in_a_folder_of_any_name(tmp_path):
    name = "50%20off a?b, 100% ü#&; and " + "x" * 200
    folder = tmp_path / "here" / name
    uri = resolve_uri("sqlite:///{store}/mlflow.db", folder)
    assert resolve_uri(uri, folder) == uri
    assert sqlite_file(uri) == folder / "mlflow.db"
    assert make_url(uri).database == str(folder / "mlflow.db")
    prepare_database(folder / "mlflow.db", create_database)
    experiment = ensure_experiment(connect(uri), uri, "s")
    assert str(connect(uri).get_experiment(experiment).name) == "s"
    assert [path.name for path in (tmp_path / "here").iterdir()] == [name]
    assert {path.name for path in folder.iterdir()} <= {"mlflow.db", "mlflow.db.lock", "artifacts"}
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_database_that_is_read_only_is_named_and_left_alone(tmp_path, monkeypatch):
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"SQLite format 3\x00")
    assert read_only(f"sqlite:///{file}") == ""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != file)
    why = f"the tracking database {file} is read-only; make {tmp_path} writable, or copy it and use the copy"
    assert read_only(f"sqlite:///{file}") == why
    with pytest.raises(TrackingError, match="is read-only"):
        prepare_database(file, create_database)
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert read_only("http://host:5000") == read_only(f"sqlite:///{tmp_path / 'not-there.db'}") == ""
