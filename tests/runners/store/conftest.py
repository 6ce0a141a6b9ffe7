"""Stores of each kind. One in a bucket talks to a server in this process."""

import itertools
from typing import Any

import pytest

from goal_sweep.runners.store import Store

_number = itertools.count()


@pytest.fixture
def bucket_store(server: Any) -> Store:
    """A store in a bucket, with nothing in it."""
    store = Store(f"s3://bucket/{next(_number)}")
    store.prepare()
    return store


@pytest.fixture(params=["folder", "bucket"])
def any_store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue("bucket_store" if request.param == "bucket" else "store")
    return found
