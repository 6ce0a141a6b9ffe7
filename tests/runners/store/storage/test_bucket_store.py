"""A store in a bucket keeps what a store in a folder promises, also between processes on different machines."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import LAST, Store
from goal_sweep.runners.store.store import _bucket
from tests.helpers.store_cases import claimed, load, named, result_of, save, train, write_weights
from tests.helpers.sweep_cases import opened_in

TRAINING = named("c" * 16)


def elsewhere(store: Store) -> Store:
    """The same store, as a process on another machine opens it: without this one's working copies."""
    _bucket.cache_clear()
    return Store(store.location)


def test_another_machine_continues_from_what_has_arrived(bucket_store: Store) -> None:
    first = claimed(bucket_store.folder(TRAINING))
    first.save_with(LAST, lambda path: write_weights(path, 1.0))
    second = claimed(elsewhere(bucket_store).folder(TRAINING))
    assert second.path(LAST) != first.path(LAST)
    assert second.path(LAST).read_bytes() == first.path(LAST).read_bytes()
    train(second)
    assert result_of(elsewhere(bucket_store).folder(TRAINING))["attempt"] == 2


def test_a_save_that_fails_leaves_the_file_before(bucket_store: Store, server: Any) -> None:
    folder = claimed(bucket_store.folder(TRAINING))
    save(folder, LAST, b"epoch 1")
    server.before = lambda method, path: "denied" if method == "PUT" and "last" in path else ""
    with pytest.raises(StorageError):
        save(folder, LAST, b"epoch 2")
    server.before = lambda method, path: ""
    assert load(folder, LAST) == b"epoch 1"


@pytest.mark.exhaustive
def test_nothing_that_is_stored_holds_credentials(bucket_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "wJalrXUtnFEMI-not-a-real-secret"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = elsewhere(bucket_store)
    folder = claimed(store.folder(TRAINING))
    folder.log("hello")
    train(folder)
    stored = [store.storage.read(path) for path in store.storage.files(store._base, below=True)]
    assert stored
    assert all(content is not None and secret.encode() not in content for content in stored)


def test_a_sweep_takes_a_bucket_as_its_store(server: Any, tmp_path: Path) -> None:
    sweep = opened_in("s3://bucket/sweep")
    assert sweep.store.location == "s3://bucket/sweep"
    assert sweep.store.root.is_relative_to(tmp_path / "cache")
    identity = hashlib.sha256(b"bucket sweep").hexdigest()[:8]
    assert sweep.store.root.name == f"bucket-sweep-{identity}"
    assert sweep.config.tracking.uri == "sqlite:///{store}/mlflow.db"
