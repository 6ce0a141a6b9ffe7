"""Stores of each kind. One in a bucket talks to a server in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from goal_sweep.runners.store import Store

_number = itertools.count()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


@pytest.fixture
def bucket_store(server) -> Store:
    """A store in a bucket, with nothing in it."""
    store = Store(f"s3://bucket/{next(_number)}")
    store.prepare()
    return store


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.exhaustive)])
def store_of_trainings(request, tmp_path) -> Store:
    return _store(request, tmp_path)


@pytest.fixture(params=["folder", "bucket"])
def any_store(request, tmp_path) -> Store:
    return _store(request, tmp_path)


def _store(request, tmp_path) -> Store:
    if request.param == "bucket":
        store: Store = request.getfixturevalue("bucket_store")
        return store
    store = Store(tmp_path / "store")
    store.prepare()
    return store
