"""Tracking that is deleted, locked, down or wrong holds nobody up and is caught up with."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from goal_sweep.runners.tracking.client import Experiment
from goal_sweep.runners.tracking.sync import SweepTracking
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

from goal_sweep.runners.tracking.uri import TrackingError, sqlite_file
from tests.helpers.mlflow_cases import (
    KEY,
    SWEEP,
    TRAINING,
    Content,
    DyingClient,
    folder_of,
    synced,
    tracked_at,
)
from tests.helpers.paths import ROOT
from tests.helpers.store_cases import record, train
from tests.helpers.until import until

pytestmark = pytest.mark.integration


def test_deleted_experiment_and_run_come_back(uri, store):
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert tracking.sync_all(wait=10)
        client = MlflowClient(uri)
        client.delete_run(Content(uri).child(KEY).info.run_id)
        folder.write_metrics([record(1), record(2)])
        assert tracking.sync_all(wait=10)
        assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == [1, 2]
        client.delete_experiment(client.get_experiment_by_name("s").experiment_id)
        folder.write_metrics([record(1), record(2), record(3)])
        assert tracking.sync_all(wait=10)
        assert any("restored" in text for text in tracking.warnings)
    content = Content(uri)
    assert [step for step, _, _ in content.history(KEY)["val/rsum"]] == [1, 2, 3]
    assert len(content.parents) == 1


def test_deleted_database_is_made_again_from_the_store(uri, store, monkeypatch, empty_database):
    file = sqlite_file(uri)
    assert file is not None
    monkeypatch.setattr(
        "goal_sweep.runners.tracking.client.create_database", lambda path: shutil.copy(empty_database, path)
    )
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert tracking.sync_all(wait=10)
        file.unlink()
        folder.write_metrics([record(1), record(2)])
        assert tracking.sync_all(wait=10)
    assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == [1, 2]
    assert len(Content(uri).parents) == 1


def test_no_database_is_made_where_its_folder_is_gone(store, monkeypatch, empty_database, tmp_path):
    monkeypatch.setattr(
        "goal_sweep.runners.tracking.client.create_database", lambda path: shutil.copy(empty_database, path)
    )
    folder = tmp_path / "mounted"
    experiment = Experiment(f"sqlite:///{folder}/mlflow.db", "s", store, live=False, take_over=False, tell=print)
    experiment.change(lambda runs: None)
    folder.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="is gone"):
        experiment.change(lambda runs: None)
    assert not folder.exists()
    (tmp_path / "away").rename(folder)
    experiment.change(lambda runs: None)


def test_an_outage_holds_nobody_up_and_is_caught_up_with(uri, store, monkeypatch):
    class Down(DyingClient):
        def _tick(self):
            if down.is_set():
                raise MlflowException("(sqlite3.OperationalError) database is locked", TEMPORARILY_UNAVAILABLE)

    down = threading.Event()
    said: list[str] = []
    monkeypatch.setattr("goal_sweep.runners.tracking.sync.RETRY_WAITS_S", (0.05,))
    monkeypatch.setattr("goal_sweep.runners.tracking.client.MlflowClient", lambda uri: Down(MlflowClient(uri), 0))
    folder = folder_of(store)
    folder.claim("L")
    tracking = SweepTracking(tracked_at(uri), store, warn=said.append)
    assert tracking.wait_open(10)
    down.set()
    for epoch in range(1, 12):
        folder.write_metrics([record(number) for number in range(1, epoch + 1)])
        tracking.sync_all()  # waiting for what is down would never end
    assert not tracking.sync_all(wait=0.2)
    assert "MLflow is not up to date: tracking does not answer" in tracking.trouble
    down.clear()
    assert tracking.sync_all(wait=30)
    tracking.close()
    assert len(said) == 2
    assert "does not answer" in said[0]
    assert "works again" in said[1]
    assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == list(range(1, 12))


@pytest.mark.exhaustive
def test_a_locked_database_holds_nobody_up_and_is_caught_up_with(uri, store):
    """As the outage above, with a real lock, for which SQLite waits 20 seconds before it gives up."""
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    said: list[str] = []
    tracking = SweepTracking(tracked_at(uri), store, warn=said.append)
    assert tracking.wait_open(10)
    file = sqlite_file(uri)
    assert file is not None
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        began = time.perf_counter()
        assert not tracking.sync_all()
        assert time.perf_counter() - began < 1
        until(lambda: said, "warning")
        assert "does not answer" in said[0]
        assert "MLflow is not up to date" in tracking.trouble
        lock.execute("ROLLBACK")
    assert tracking.sync_all(wait=30)
    assert tracking.trouble == ""
    assert "works again" in said[-1]
    tracking.close()
    assert Content(uri).child(KEY).info.status == "FINISHED"


def test_a_server_that_is_down_stops_nothing(store, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 1)
    said: list[str] = []
    tracking = SweepTracking(tracked_at("http://127.0.0.1:9"), store, warn=said.append, closing_s=0.2)
    assert not tracking.wait_open(1.5)
    assert not tracking.sync_all(wait=0.2)
    assert tracking.trouble.startswith("MLflow is not up to date: tracking does not answer")
    assert len(said) == 1
    tracking.close()


@pytest.mark.parametrize("server", ["refuses", "never answers"])
def test_nobody_waits_long_for_a_dead_server_unless_it_was_alive(store, server, monkeypatch):
    monkeypatch.setattr("goal_sweep.runners.tracking.sync.ANSWER_S", 0.5)
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 1)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        port = 9 if server == "refuses" else listening.getsockname()[1]
        with SweepTracking(tracked_at(f"http://127.0.0.1:{port}"), store, warn=lambda text: None) as tracking:
            assert not tracking.wait_open()
            assert not tracking.sync_all(wait=3600)  # which is longer than a test may take
            assert tracking.trouble.startswith("MLflow is not up to date: tracking does not answer")
            tracking.limit(0.1)


def test_an_error_leaves_tracking_little_time_to_close(uri, store, monkeypatch):
    test_is_over = threading.Event()

    class Slow(DyingClient):
        def _tick(self):
            test_is_over.wait()

    monkeypatch.setattr("goal_sweep.runners.tracking.sync.AFTER_ERROR_S", 0.5)
    monkeypatch.setattr("goal_sweep.runners.tracking.client.MlflowClient", lambda uri: Slow(MlflowClient(uri), 0))
    with pytest.raises(KeyboardInterrupt), SweepTracking(tracked_at(uri), store):
        raise KeyboardInterrupt
    test_is_over.set()


def test_a_file_that_is_no_database_is_said_at_once(tmp_path, store):
    path = tmp_path / "mlflow.db"
    path.write_text("not a database at all")
    with SweepTracking(tracked_at(f"sqlite:///{path}"), store, warn=lambda text: None, closing_s=1) as tracking:
        with pytest.raises(TrackingError, match="is not an SQLite database"):
            tracking.wait_open(10)
        tracking.sync(TRAINING)
        assert not tracking.sync_all(wait=1)
        assert "is not an SQLite database" in tracking.trouble
    assert path.read_text() == "not a database at all"


def test_a_bug_in_one_update_does_not_block_the_next(uri, store, monkeypatch):
    def broken(*arguments: object) -> None:
        raise KeyError("missing")

    said: list[str] = []
    with SweepTracking(tracked_at(uri), store, warn=said.append) as tracking:
        with monkeypatch.context() as patch:
            patch.setattr("goal_sweep.runners.tracking.sync.training_row", broken)
            tracking.sync(TRAINING)
            tracking.sync(SWEEP.trainings[1])
            tracking.flush(10)
        assert tracking.trouble.startswith("2 of 2 runs are not up to date")
        tracking.sync(TRAINING)
        tracking.flush(10)
        assert tracking.trouble.startswith("1 of 2 runs are not up to date")
    assert len(said) == 2
    assert "update failed and is skipped" in said[0]


def test_mlflow_is_quiet(uri, store, capfd):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 1)
    synced(uri, store)
    out, err = capfd.readouterr()
    assert out + err == ""
    assert logging.getLogger("mlflow").level == logging.ERROR
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.exhaustive
def test_processes_that_open_a_fresh_database_together(tmp_path, store):
    code = (
        "import sys; from goal_sweep.runners.store import Store; from tests.helpers.mlflow_cases import synced\n"
        f"synced(sys.argv[1], Store({str(store.root)!r}))"
    )
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    running = [
        subprocess.Popen([sys.executable, "-c", code, uri], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 2
    assert len(synced(uri, store).parents) == 1
