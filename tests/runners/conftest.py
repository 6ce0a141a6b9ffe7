"""A store, an S3 server in this process, and plans of sweeps."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store import Store


@pytest.fixture(scope="session")
def _running_server() -> Iterator[object]:
    pytest.importorskip("moto", reason="moto[server] is not installed")
    pytest.importorskip("obstore", reason="obstore is not installed")
    from tests.helpers.s3_server import CREDENTIALS, served

    with served() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def server(_running_server, monkeypatch, tmp_path):
    """The server, without faults."""
    from goal_sweep.runners.store import bucket
    from tests.helpers.s3_server import CREDENTIALS

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": _running_server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOAL_SWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for other processes; this one has looked
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(bucket.BACKOFF, "init_backoff", timedelta(milliseconds=1))
    monkeypatch.setitem(bucket.BACKOFF, "max_backoff", timedelta(milliseconds=10))
    _running_server.without_faults()
    return _running_server


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Prints the plan of a sweep in an empty folder, on a machine without COCO."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOAL_COCO", raising=False)

    def plan(*arguments: str) -> str:
        assert run(["plan", *arguments]) == 0
        return capsys.readouterr().out

    return plan
