"""A server that is busy, forgetful, away, wrong or absent."""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("moto", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")

from goal_core.basics.atomic import DamagedError, StorageError
from runners.store import Store
from runners.store.storage import parts, requests
from runners.store.storage.bucket import Bucket
from runners.store.storage.requests import RefusedError
from tests.helpers.s3_server import flip


@pytest.fixture
def bucket(server) -> Bucket:
    return Bucket("bucket")


def in_turn(*faults):
    left = list(faults)
    return lambda method, path: left.pop(0) if left else ""


def test_a_busy_server_is_asked_again(bucket, server):
    server.before = in_turn("busy", "lost", "busy")
    bucket.put("busy", b"content")
    assert bucket.get("busy") == b"content"
    server.before = in_turn("busy", "busy")
    assert [one.key for one in bucket.list("busy")] == ["busy"]


def test_a_refusal_is_an_answer_and_not_repeated(bucket, server):
    bucket.put("taken", b"one")
    before = len(server.requests)
    with pytest.raises(RefusedError):
        bucket.put("taken", b"two", new=True)
    assert len(server.requests) == before + 1
    assert bucket.get("taken") == b"one"


def test_a_creation_whose_answer_is_lost_counts(bucket_store, server):
    path = bucket_store.drivers.folder / "claim.json"
    server.before = in_turn("lost")
    assert bucket_store.storage.create(path, b"mine")
    assert not bucket_store.storage.create(path, b"theirs")


def test_the_guard_is_asked_before_every_try(bucket, server):
    server.before = in_turn("busy", "busy")
    asked = []

    def guard():
        asked.append(1)
        if len(asked) == 3:
            raise KeyError("lost the lease")

    with pytest.raises(KeyError):
        bucket.put("guarded", b"late", guard=guard)
    assert bucket.get("guarded") is None


def test_a_server_that_stays_away_is_named_after_a_while(bucket, server, monkeypatch):
    monkeypatch.setattr(requests, "PATIENCE_S", 0.2)
    bucket.put("x", b"1")
    server.before = lambda method, path: "busy"
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"cannot read s3://bucket/x: .*SlowDown.*tried for 0 s"):
        bucket.get("x")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("fault", "message"),
    [("denied", r"cannot write s3://bucket/x: .*AccessDenied"), ("skewed", "set this machine's clock")],
)
def test_what_waiting_does_not_mend_is_raised_at_once(bucket, server, fault, message):
    server.before = lambda method, path: fault
    with pytest.raises(StorageError, match=message):
        bucket.put("x", b"1")
    server.without_faults()


def test_a_missing_bucket_and_missing_credentials_are_named(server, monkeypatch):
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/.*create the bucket first"):
        Store("s3://no-such-bucket/x")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageError, match="set AWS_ACCESS_KEY_ID"):
        Bucket("bucket").get("x")


def test_a_large_file_travels_in_parts_of_which_only_those_that_fail_are_repeated(
    bucket, server, tmp_path, monkeypatch
):
    size = 5 * 2**20
    for module in ("bucket", "parts"):
        monkeypatch.setattr(f"runners.store.storage.{module}.PART", size)
    path, back = tmp_path / "large", tmp_path / "back"
    path.write_bytes(os.urandom(2 * size + 5))
    server.before = in_turn("", "", "busy", "lost", "", "lost", "")
    before = len(server.requests)
    bucket.send("large", path, guard=lambda: None)
    assert len(server.requests) - before <= 5 + 4  # begin, three parts, complete; and the tries again
    assert bucket.fetch("large", back)
    assert back.read_bytes() == path.read_bytes()
    bucket.copy("large", "copy")
    assert bucket.digest("copy") == bucket.digest("large")


class WithoutUpload:
    """A server that has removed an unfinished upload, and holds an object of before, if any."""

    def __init__(self, holds: str | None) -> None:
        self.holds = holds

    def ask(self, doing, method, **given):
        return {"UploadId": "u", "ETag": "e"}

    def once(self, method, **given):
        if method == "complete_multipart_upload" or (method == "head_object" and self.holds is None):
            raise FileNotFoundError
        return {"Metadata": {"sha256": self.holds}}

    def repeated(self, doing, key, act):
        return act()


@pytest.mark.parametrize("holds", [None, "of the epoch before"])
def test_an_upload_that_the_server_has_removed_is_not_taken_as_written(holds, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"x")
    with pytest.raises(requests.AwayError, match="lost the parts"):
        parts.send_in_parts(WithoutUpload(holds), "large", path, {"sha256": "of this epoch"}, lambda: None)
    parts.send_in_parts(WithoutUpload("of this epoch"), "large", path, {"sha256": "of this epoch"}, lambda: None)


def test_damage_shows_when_an_object_is_read(bucket, server):
    bucket.put("x", b"content")
    flip(bucket, "x")
    with pytest.raises(DamagedError, match=r"s3://bucket/x is damaged"):
        bucket.get("x")


def test_a_server_without_conditional_writes_is_refused(server):
    store = Store("s3://bucket/unconditional")
    server.before = lambda method, path: "unconditional"
    with pytest.raises(StorageError, match=r"s3://bucket ignores conditional writes \(If-None-Match\)"):
        store.prepare()
