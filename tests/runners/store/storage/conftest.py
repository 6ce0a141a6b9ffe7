"""A storage of each kind. That in a bucket talks to a server in this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from runners.store import Store

_number = itertools.count()


@pytest.fixture(scope="session")
def _running_server() -> Iterator[object]:
    pytest.importorskip("moto", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    from tests.helpers.s3_server import CREDENTIALS, served

    with served() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def server(_running_server, monkeypatch, tmp_path):
    """The server, without faults."""
    from tenacity import wait_none

    from runners.store.storage import requests
    from tests.helpers.s3_server import CREDENTIALS

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": _running_server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOAL_SWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOAL_SWEEP_SCRATCH", str(tmp_path))
    monkeypatch.setattr(requests, "PAUSE", wait_none())
    _running_server.without_faults()
    return _running_server


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
