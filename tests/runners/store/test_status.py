"""How far trainings are, as the store tells it."""

import json
import os
import time
from dataclasses import replace
from typing import Any

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import LAST, ClaimLostError, Store, TrainingStatus
from goal_sweep.runners.store.attempts import STALE_S
from tests.helpers.store_cases import claimed, named, record, save, train

TRAINING = named("c" * 16)


def status(store: Store, **options: Any) -> TrainingStatus:
    return store.status([TRAINING], **options)[TRAINING]


def test_each_state(store: Store) -> None:
    trainings = {name: named(name.ljust(16, "0"), name) for name in ("waiting", "running", "dead", "failed", "done")}
    folders = {name: store.folder(training) for name, training in trainings.items()}
    for name in ("running", "dead", "failed", "done"):
        folders[name].claim("L")
    folders["running"].write_metrics([record(1), record(2)])
    save(folders["running"], LAST, b"the state after two epochs")
    dead = folders["dead"]
    assert dead.attempt is not None
    dead.attempts.write(replace(dead.attempt, machine="another boot"))
    os.utime(dead.attempts.folder / "1.json", (time.time() - STALE_S - 1,) * 2)
    folders["failed"].end("failed", "it broke\nbadly", trace="Traceback ...", counted=True)
    train(folders["done"])
    found = {name: store.status([training])[training] for name, training in trainings.items()}
    assert {name: one.state for name, one in found.items()} == {
        "waiting": "waiting", "running": "running", "dead": "waiting", "failed": "failed", "done": "done",
    }  # fmt: skip
    assert (found["running"].epochs, found["running"].best_rsum) == (2, 20.0)
    assert f"pid {os.getpid()}" in found["running"].holder
    assert found["failed"].reason == "it broke badly"
    assert found["done"].metrics["test/rsum"] == 42.0
    folders["running"].end("interrupted", "stopped")
    saved = store.status([trainings["running"]])[trainings["running"]]
    assert (saved.state, saved.epochs, saved.reason) == ("waiting", 2, "stopped")


def test_failures_count_against_the_attempts_unless_excused(store: Store) -> None:
    def fails(**how: bool) -> None:
        folder = claimed(store.folder(TRAINING))
        folder.end("failed", "boom", **how)

    fails(counted=True)
    fails()
    one = status(store, max_attempts=2)
    assert (one.state, one.attempts, one.failures, one.reason) == ("waiting", 2, 1, "boom")
    fails(counted=True)
    assert status(store, max_attempts=2).state == "failed"
    assert status(store, max_attempts=3).state == "waiting"
    fails(final=True)
    assert status(store, max_attempts=99).state == "failed"


def test_a_bucket_is_only_read(bucket_store: Store, server: Any) -> None:
    folder = claimed(bucket_store.folder(TRAINING))
    folder.write_metrics([record(1)])
    server.requests.clear()
    assert status(bucket_store).attempts == 1
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}


def test_the_result_of_another_training_is_damage(store: Store) -> None:
    """As a copy into the wrong folder leaves it."""
    other = named("d" * 16, "e" * 16)
    for training in (TRAINING, other):
        train(claimed(store.folder(training)))
    content = store.folder(other).path("result.json").read_bytes()
    store.folder(TRAINING).path("result.json").write_bytes(content)
    assert json.loads(content)["stage_key"] == other.key
    assert status(store).state == "waiting"
    assert "the result of another training" in status(store).reason


def test_a_folder_that_is_deleted_is_survived(store: Store) -> None:
    folder = claimed(store.folder(TRAINING))
    for path in sorted((store.root / "cells" / TRAINING.cell.id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises((StorageError, ClaimLostError)):
        save(folder, "x", b"")
    assert status(store).state == "waiting"
