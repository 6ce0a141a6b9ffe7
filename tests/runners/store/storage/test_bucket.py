"""A server that is busy, forgetful, away, wrong or absent, and credentials that are refused or expire."""

import errno
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.until import until

pytest.importorskip("moto", reason="moto[server] is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.basics.machine import process_tag
from goal_sweep.runners.store import Store
from goal_sweep.runners.store import bucket as bucket_module
from goal_sweep.runners.store.bucket import PART, ObjectStorage
from goal_sweep.runners.store.storage import ExpiredCredentialsError
from goal_sweep.runners.store.store import _bucket

_number = itertools.count()


class Opened:
    """A place in the bucket that nothing is known of yet, with short names."""

    def __init__(self, prefix: str = "", **more: Any) -> None:
        self.prefix = prefix or f"opened-{next(_number)}"
        self.base, _ = _bucket("bucket", self.prefix, None, -next(_number))
        self.storage = ObjectStorage("bucket", self.prefix, self.base, **more)

    def read(self, name: str) -> bytes | None:
        return self.storage.read(self.base / name)

    def replace(self, name: str, content: bytes) -> None:
        self.storage.replace(self.base / name, content)


@pytest.fixture
def bucket(server) -> Opened:
    return Opened()


def in_turn(*faults):
    left = list(faults)
    return lambda method, path: left.pop(0) if left else ""


def test_a_busy_server_is_asked_again(bucket, server):
    server.before = in_turn("busy", "lost", "busy")
    bucket.replace("busy/a", b"content")
    assert bucket.read("busy/a") == b"content"
    server.before = in_turn("busy", "busy")
    assert list(bucket.storage.files(bucket.base, below=True)) == [bucket.base / "busy/a"]


def test_a_refusal_is_an_answer_and_not_repeated(bucket, server):
    bucket.replace("taken", b"one")
    before = len(server.requests)
    assert not bucket.storage.create(bucket.base / "taken", b"two")
    assert [method for method, _ in server.requests[before:]] == ["PUT", "GET"]
    assert bucket.read("taken") == b"one"


def test_a_creation_whose_answer_is_lost_counts(bucket_store, server):
    path = bucket_store._base / "launches" / "claim.json"
    server.before = in_turn("lost")
    assert bucket_store.storage.create(path, b"mine")
    assert not bucket_store.storage.create(path, b"theirs")


def test_a_server_that_stays_away_is_named_after_a_while(server):
    bucket = Opened("slow", first=0.2)
    server.before = lambda method, path: "busy"
    with pytest.raises(StorageError, match=r"cannot read s3://bucket/slow/x: SlowDown: busy \(tried for") as error:
        bucket.read("x")
    assert error.value.errno == errno.ETIMEDOUT


def test_a_server_that_nobody_runs_is_named(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"cannot read s3://bucket/none/x: .*Connection refused"):
        Opened("none", first=0.1).read("x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
    with pytest.raises(StorageError, match="must begin with http:// or https://"):
        Opened("none")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("denied", r"cannot write s3://bucket/.*/x: AccessDenied"),
        ("skewed", "set this machine's clock"),
        ("unknown", "InvalidAccessKeyId"),
    ],
)
def test_what_waiting_does_not_mend_is_raised_at_once(bucket, server, fault, message):
    server.before = lambda method, path: fault
    before = len(server.requests)
    with pytest.raises(StorageError, match=message) as error:
        bucket.replace("x", b"1")
    assert not isinstance(error.value, UnfinishedError)
    assert len(server.requests) == before + 1


@pytest.mark.parametrize("fault", ["expired", "unknown"])
def test_credentials_that_expire_are_an_error_of_their_own(bucket, server, fault):
    bucket.replace("x", b"1")
    server.before = lambda method, path: fault
    for act in (
        lambda: bucket.read("x"),
        lambda: bucket.replace("x", b"2"),
        lambda: bucket.storage.entries(bucket.base),
    ):
        with pytest.raises(ExpiredCredentialsError, match=r"role or a credential_process") as error:
            act()
        assert "\n" not in str(error.value)


def without_credentials(monkeypatch, config):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_a_missing_bucket_and_missing_credentials_are_named(server, monkeypatch):
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/.*create the bucket first"):
        Store("s3://no-such-bucket/x")
    without_credentials(monkeypatch, os.devnull)
    with pytest.raises(StorageError, match="set AWS_ACCESS_KEY_ID"):
        Opened().read("x")


def test_a_credential_process_is_asked_and_its_failure_later_is_an_expiry(server, tmp_path, monkeypatch):
    keys = {"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "secret", "SessionToken": "token"}
    (tmp_path / "keys.json").write_text(json.dumps({**keys, "Expiration": "2000-01-01T00:00:00Z"}))
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = cat {tmp_path}/keys.json\n")
    without_credentials(monkeypatch, config)
    monkeypatch.setattr(bucket_module, "_KEPT", bucket_module._KEPT / 6)  # ask for every request
    bucket = Opened()
    with pytest.raises(StorageError, match="refreshed credentials are still expired") as error:
        bucket.read("x")
    assert not isinstance(error.value, UnfinishedError)
    (tmp_path / "keys.json").write_text(json.dumps({**keys, "Expiration": "2999-01-01T00:00:00Z"}))
    assert bucket.read("of/nobody") is None
    config.write_text("[default]\n")
    later = Opened()
    later.storage._answered = bucket.storage._answered
    with pytest.raises(ExpiredCredentialsError):
        later.read("x")


def test_a_large_file_travels_in_parts_of_which_only_those_that_fail_are_repeated(bucket, server):
    content = os.urandom(2 * PART + 5)
    server.before = in_turn("", "", "busy", "lost", "", "lost", "", "lost")
    before = len(server.requests)
    bucket.replace("large", content)
    assert len(server.requests) - before <= 5 + 5  # begin, three parts, complete; and the tries again
    assert bucket.read("large") == content
    assert bucket.storage.fetch(bucket.base / "large").read_bytes() == content


def test_a_server_without_conditional_writes_is_refused(server):
    store = Store("s3://bucket/unconditional")
    server.before = lambda method, path: "unconditional"
    with pytest.raises(StorageError, match=r"s3://bucket/unconditional/ ignores conditional writes \(If-None-Match\)"):
        store.prepare()


def test_a_signal_reaches_python_while_a_request_waits(bucket, server):
    """Or else nobody could stop a launch whose server hangs."""
    import signal
    import threading

    gate, rung = threading.Event(), []

    def ring(*_: object) -> None:
        rung.append(time.monotonic())
        gate.set()

    server.before = lambda method, path: gate.wait(60) and ""
    before = signal.signal(signal.SIGUSR2, ring)
    try:
        asked = threading.Thread(target=_send_when_asked, args=[server, len(server.requests)])
        asked.start()
        bucket.read("behind/a/gate")
        asked.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert rung


def _send_when_asked(server, before):
    import signal

    until(lambda: len(server.requests) > before, "request")
    os.kill(os.getpid(), signal.SIGUSR2)


def test_foreign_names_in_the_bucket_are_named_or_left_out(bucket_store, server):
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    folder = bucket_store._base / "cells" / "c"
    prefix = f"{bucket_store.location.rpartition('/')[2]}/cells/c"
    bucket_store.storage.replace(folder / "cell.json", b"{}")
    backend.put_object("bucket", f"{prefix}/", b"")  # as a web console makes folders
    assert list(bucket_store.storage.files(folder, below=True)) == [folder / "cell.json"]
    assert bucket_store.storage.entries(folder) == [folder / "cell.json"]
    backend.put_object("bucket", f"{prefix}/../x", b"")
    with pytest.raises(StorageError, match="invalid path"):
        bucket_store.storage.files(folder, below=True)
    assert not Path(folder.parent / "x").exists()


def test_working_copies_of_dead_processes_are_removed_and_those_of_the_living_stay(server, tmp_path):
    machine = process_tag().partition("-")[0]
    dead, living = (tmp_path / f"goal-sweep-work-{machine}-{pid}-abc" for pid in (2**22 + 1, os.getpid()))
    for folder in (dead, living):
        folder.mkdir()
    bucket = Opened()
    assert bucket.base.parents[1].parent == tmp_path
    assert bucket.base.parents[1].stat().st_mode & 0o777 == 0o700
    assert (dead.exists(), living.exists()) == (False, True)
