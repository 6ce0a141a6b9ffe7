"""Trackers that are slow, away, deleted, wrong or broken hold nobody up, and MLflow is caught up with."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

from goal_sweep.runners.results import training_row, update_results
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import tracking as module
from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker
from goal_sweep.runners.tracking.tracking import Tracking
from goal_sweep.runners.tracking.uri import TrackingError
from goal_sweep.sweeps import ResolvedSweep
from goal_sweep.sweeps.schema import TrackingConfig
from tests.helpers.mlflow_cases import KEY, SWEEP, TRAINING, Content, folder_of
from tests.helpers.store_cases import claimed, record, train
from tests.helpers.until import until

pytestmark = pytest.mark.integration
Said = list[str]


def tracked_at(uri: str) -> ResolvedSweep:
    return replace(SWEEP, config=replace(SWEEP.config, tracking=TrackingConfig(uri=uri)))


@contextlib.contextmanager
def tracking(uri: str, store: Store, said: Said) -> Iterator[Tracking]:
    with Tracking(tracked_at(uri), store.root, live=True, warn=said.append) as tracking:
        yield tracking


def finish(store: Store, tracking: Tracking) -> None:
    """Train, and tell how it ended."""
    folder = folder_of(store)
    if folder.result() is None:
        train(claimed(folder), 3)
    tracking.end(training_row(store, TRAINING, store.status([TRAINING])[TRAINING]))
    tracking.finish(update_results(store, SWEEP))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", (0.05,))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def steps(uri: str) -> list[int]:
    return [step for step, _ in Content(uri).history().get("val/rsum", [])]


def test_a_launch_is_followed_and_nothing_is_printed(uri: str, store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    said: Said = []
    with tracking(uri, store, said) as one:
        one.mlflow.check(60)
        one.begin(TRAINING)
        for epoch in (1, 2):
            one.epoch(KEY, record(epoch))
        until(lambda: len(Content(uri).children) == 1 and len(steps(uri)) == 2, "epochs")
        finish(store, one)
        one.close(60)
    assert steps(uri) == [1, 2, 3]
    assert Content(uri).child().info.status == "FINISHED"
    assert (said, one.mlflow.trouble) == ([], "")
    assert "".join(capfd.readouterr()) == ""
    assert logging.getLogger("mlflow").level == logging.ERROR
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_an_outage_holds_nobody_up_and_is_caught_up_with(
    uri: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, down, log = Said(), threading.Event(), MlflowTracker._log

    def fails(*given: Any, **named: Any) -> None:
        if down.is_set():
            raise MlflowException("(sqlite3.OperationalError) database is locked", TEMPORARILY_UNAVAILABLE)
        log(*given, **named)

    monkeypatch.setattr(MlflowTracker, "_log", fails)
    with tracking(uri, store, said) as one:
        one.begin(TRAINING)
        one.mlflow.check(60)
        until(lambda: Content(uri).children, "run")
        down.set()
        for epoch in (1, 2, 3):
            one.epoch(KEY, record(epoch))
        until(lambda: said, "warning")
        assert "MLflow does not answer: (sqlite3" in one.mlflow.trouble
        down.clear()
        one.close(60)
    assert [line.partition(":")[0] for line in said] == ["MLflow does not answer", "MLflow answers again"]
    assert one.mlflow.trouble == ""
    assert steps(uri) == [1, 2, 3]


@pytest.mark.exhaustive
def test_a_run_that_is_deleted_meanwhile_is_made_again(uri: str, store: Store) -> None:
    with tracking(uri, store, Said()) as one:
        one.mlflow.check(60)
        one.begin(TRAINING)
        one.epoch(KEY, record(1))
        until(lambda: len(Content(uri).children) == 1 and steps(uri) == [1], "epoch")
        content = Content(uri)
        content.client.delete_run(content.child().info.run_id)
        one.epoch(KEY, record(2))
        finish(store, one)
        one.close(120)
    assert (steps(uri), Content(uri).child().info.status) == ([1, 2, 3], "FINISHED")
    assert len(Content(uri).parents) == 1


@pytest.mark.parametrize("server", ["refuses", "never answers"])
def test_nobody_waits_long_for_a_server_that_is_down(
    store: Store, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AWAY_S", 0.2)
    said: Said = []
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        port = 9 if server == "refuses" else listening.getsockname()[1]
        began = time.monotonic()
        with tracking(f"http://127.0.0.1:{port}", store, said) as one:
            one.mlflow.check(0.5)
            finish(store, one)
            one.close(60 if server == "refuses" else 0.5)
    assert time.monotonic() - began < 20
    assert one.mlflow.trouble.startswith("MLflow does not answer")


def test_a_file_that_is_no_database_is_said_at_once_and_left_alone(tmp_path: Path, store: Store) -> None:
    path, said = tmp_path / "mlflow.db", Said()
    path.write_text("not a database at all")
    with tracking(f"sqlite:///{path}", store, said) as one:
        with pytest.raises(TrackingError, match="is not an SQLite database"):
            one.mlflow.check(60)
        one.begin(TRAINING)
        one.close(60)
    assert "is not an SQLite database" in one.mlflow.trouble
    assert path.read_text() == "not a database at all"


def test_a_call_that_mlflow_refuses_or_a_bug_is_given_up_and_the_next_one_made(uri: str, store: Store) -> None:
    said: Said = []

    def refused(tracker: MlflowTracker) -> None:
        raise MlflowException("too long", INVALID_PARAMETER_VALUE)

    def wrong(tracker: MlflowTracker) -> None:
        raise KeyError("missing")

    with tracking(uri, store, said) as one:
        one.mlflow.tell(refused)
        one.mlflow.tell(wrong)
        finish(store, one)
        one.close(60)
    assert one.mlflow.trouble == "MLflow: KeyError: 'missing'"
    assert said[0].startswith("MLflow does not answer: ")
    assert Content(uri).child().info.status == "FINISHED"
