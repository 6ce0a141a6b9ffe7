from __future__ import annotations

import errno
import json
import os
import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest

from goal_core import atomic
from goal_core.atomic import DamagedError, StorageError
from runners.store import Store
from runners.store.lease import LeaseLostError
from runners.store.training_folder import AlreadyDoneError, end_attempt
from tests.helpers.store_cases import named, record, result, train, write_weights

TRAINING = named("c" * 16)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def test_layout_is_the_documented_one(store):
    folder = store.folder(TRAINING)
    store.write_cell(TRAINING.cell)
    folder.claim("L")
    train(folder)
    folder.log("hello")
    root = store.root
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    stage = f"cells/{TRAINING.cell.id}/frozen-{TRAINING.key}"
    names = (
        "metrics.jsonl",
        "last.safetensors",
        "best.safetensors",
        "log.txt",
        "attempts/1.json",
        "lease.json",
        "result.json",
    )
    assert files == {"store.json", f"cells/{TRAINING.cell.id}/cell.json", *(f"{stage}/{name}" for name in names)}
    assert json.loads((root / stage / "lease.json").read_text()) == {"launch_id": "L", "attempt": 1}


def test_object_stores_are_refused_in_one_line():
    with pytest.raises(StorageError, match=r"s3://bucket/x.*object stores .* not supported") as error:
        Store("s3://bucket/x")
    assert "\n" not in str(error.value)


def test_a_file_is_no_store_and_a_later_layout_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is a file"):
        Store(tmp_path / "file")
    (tmp_path / "store.json").write_text('{"version": 99}')
    with pytest.raises(StorageError, match="layout 99"):
        Store(tmp_path)


def test_relative_root_does_not_follow_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("here")
    monkeypatch.chdir("/")
    store.prepare()
    assert (tmp_path / "here" / "cells").is_dir()


def test_cell_description_is_written_once_and_a_damaged_one_again(store):
    cell = TRAINING.cell
    store.write_cell(cell)
    store.write_cell(replace(cell, seed=2))
    assert store.read_cell(cell.id) == cell.describe()
    assert cell.describe()["seed"] == 1
    (store.root / "cells" / cell.id / "cell.json").write_text('{"se')
    store.write_cell(replace(cell, seed=3))
    assert (store.read_cell(cell.id) or {})["seed"] == 3
    assert store.read_cell("unknown") is None


def test_what_is_saved_is_read_back(store):
    folder = store.folder(TRAINING)
    assert folder.load("best.safetensors") is None
    folder.claim("L")
    folder.save("x.bin", b"one")
    folder.save("x.bin", b"two")
    assert folder.load("x.bin") == b"two"
    assert folder.path("x.bin").read_bytes() == b"two"
    folder.write_metrics([record(1), {"epoch": 2, "metrics": {"a": float("nan"), "b": float("-inf"), "c": 1e-17}}])
    first, second = folder.records()
    assert first == record(1)
    assert str(second["metrics"]["a"]) == "nan"
    assert second["metrics"]["b"] == float("-inf")
    assert second["metrics"]["c"] == 1e-17
    for line in (folder.load("metrics.jsonl") or b"").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    folder.write_metrics([record(1)])
    assert folder.records() == [record(1)]


def test_every_log_line_names_its_attempt(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.log("one\ntwo")
    folder.log("")
    lines = folder.path("log.txt").read_text().splitlines()
    assert [line.split(" | ")[1] for line in lines] == ["one", "two", ""]
    assert all(line.split(" | ")[0].endswith("attempt 1") for line in lines)


def test_result_says_what_it_speaks_for(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    found = folder.result()
    assert found["metrics"] == result()["metrics"]
    assert found["attempt"] == 1
    assert found["stage_key"] == TRAINING.key
    assert found["files"]["best.safetensors"]["bytes"] == folder.path("best.safetensors").stat().st_size
    assert len(found["files"]["best.safetensors"]["sha256"]) == 64
    assert folder.attempts.newest().outcome == "done"


def test_a_finished_stage_takes_nothing_more(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    for write in (lambda: folder.save("x", b""), lambda: folder.finish(result()), lambda: folder.fail("late")):
        with pytest.raises(LeaseLostError, match="ended"):
            write()
    with pytest.raises(AlreadyDoneError):
        store.folder(TRAINING).claim("L")
    folder.discard("last.safetensors")
    assert folder.load("last.safetensors") is None
    assert folder.load("best.safetensors") is not None
    folder.discard("last.safetensors")


def test_writing_without_a_claim_is_a_bug(store):
    with pytest.raises(RuntimeError, match="claim"):
        store.folder(TRAINING).save("x", b"")


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-4])])
def test_no_result_without_whole_weights(store, spoil):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best.safetensors", write_weights)
    spoil(folder.path("best.safetensors"))
    with pytest.raises(StorageError, match=r"best\.safetensors"):
        folder.finish(result())
    assert folder.result() is None
    assert store.status([TRAINING])[TRAINING].state != "done"


def test_result_of_another_attempt_is_not_overwritten(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best.safetensors", write_weights)
    theirs = json.dumps(result(test_rsum=1.0))
    folder.path("result.json").write_text(theirs)
    with pytest.raises(LeaseLostError, match="another attempt"):
        folder.finish(result(test_rsum=2.0))
    assert folder.path("result.json").read_text() == theirs


def test_folder_travels_to_another_process(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    copy = pickle.loads(pickle.dumps(folder))
    copy.save("x", b"1")
    assert folder.load("x") == b"1"


# Status.


def test_status_of_each_state(store):
    names = ("waiting", "running", "dead", "failed", "done")
    trainings = {name: named(name.ljust(16, "0"), name) for name in names}
    with store.heartbeat("s") as launch:
        launch.start()
        for name in ("running", "failed", "done"):
            store.folder(trainings[name]).claim(launch.id)
        store.folder(trainings["dead"]).claim("long-gone")
        running = store.folder(trainings["running"])
        running.claim(launch.id)
        running.write_metrics([record(1), record(2)])
        failing = store.folder(trainings["failed"])
        failing.claim(launch.id)
        failing.fail("it broke\nbadly", "Traceback ...")
        done = store.folder(trainings["done"])
        done.claim(launch.id)
        train(done)
        status = store.status(trainings.values())
        assert {name: status[training].state for name, training in trainings.items()} == {
            "waiting": "waiting", "running": "running", "dead": "waiting", "failed": "failed", "done": "done",
        }  # fmt: skip
        assert status[trainings["running"]].epochs == 2
        assert f"pid {os.getpid()}" in status[trainings["running"]].holder
        assert status[trainings["failed"]].reason == "it broke badly"
        assert status[trainings["done"]].result["metrics"]["test/rsum"] == 42.0
    assert store.status([trainings["running"]])[trainings["running"]].state == "waiting"


def test_failures_count_against_the_attempts_unless_excused(store):
    def fails(**how: bool) -> None:
        folder = store.folder(TRAINING)
        folder.claim("L")
        folder.fail("boom", **how)

    fails()
    fails(charged=False)
    status = store.status([TRAINING], max_attempts=2)[TRAINING]
    assert (status.state, status.attempts, status.charged, status.reason) == ("waiting", 2, 1, "boom")
    fails()
    assert store.status([TRAINING], max_attempts=2)[TRAINING].state == "failed"
    assert store.status([TRAINING], max_attempts=3)[TRAINING].state == "waiting"
    fails(charged=False, final=True)
    assert store.status([TRAINING], max_attempts=99)[TRAINING].state == "failed"


def test_driver_writes_down_the_end_of_a_dead_worker(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    assert not end_attempt(store.folder(TRAINING), "other launch", "failed", "killed", charged=True)
    assert end_attempt(store.folder(TRAINING), "L", "failed", "killed by signal 9", charged=True)
    assert not end_attempt(store.folder(TRAINING), "L", "lost", "again", charged=False)
    attempt = store.folder(TRAINING).attempts.newest()
    assert (attempt.outcome, attempt.reason, attempt.charged) == ("failed", "killed by signal 9", True)


def test_reading_changes_nothing(store):
    folder = store.folder(TRAINING)
    folder.claim("gone")
    folder.save("last.safetensors", b"x")

    def snapshot() -> dict[str, tuple[int, bytes]]:
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in store.root.rglob("*") if p.is_file()}

    before = snapshot()
    other = named("never", "seen")
    assert store.status([TRAINING, other])[other].state == "waiting"
    assert snapshot() == before
    assert not Store(store.root / "absent").status([TRAINING])[TRAINING].attempts
    assert not (store.root / "absent").exists()


def test_status_of_a_full_study_is_quick(store):
    trainings = [named(f"{number:016x}", f"{number:016x}") for number in range(450)]
    for training in trainings:
        folder = store.folder(training)
        folder.attempts.folder.mkdir(parents=True)
        folder.path("result.json").write_text(json.dumps(result()))
    began = time.perf_counter()
    assert all(status.state == "done" for status in store.status(trainings).values())
    assert time.perf_counter() - began < 5  # takes about 20 ms; the bound only catches a worse order of growth


# Damaged files and disk errors.


@pytest.mark.parametrize("content", ["", '{"status": "do', "[]", '{"status": "done"}', '{"metrics": {}}', "\x00\xff"])
def test_damaged_result_is_named_and_done_again(store, content):
    folder = store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    folder.path("result.json").write_text(content)
    status = store.status([TRAINING])[TRAINING]
    assert status.state == "waiting"
    assert status.damaged
    assert "result.json is damaged" in status.reason
    again = store.folder(TRAINING)
    again.claim("M")
    assert folder.path("result.json.damaged").exists()
    train(again)
    assert store.status([TRAINING])[TRAINING].state == "done"


def test_a_training_that_is_set_aside_is_done_again_and_nothing_is_lost(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    aside = store.set_aside(TRAINING)
    assert aside is not None
    assert (aside / "best.safetensors").exists()
    assert store.status([TRAINING])[TRAINING].state == "waiting"
    assert store.set_aside(TRAINING) is None


def test_deleted_folder_and_damaged_attempt_are_survived(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    (folder.folder / "attempts" / "1.json").write_text("{")
    assert store.status([TRAINING])[TRAINING].state == "waiting"
    again = store.folder(TRAINING)
    assert again.claim("M") == 2
    for path in sorted((store.root / "cells" / TRAINING.cell.id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises((StorageError, LeaseLostError)):
        again.save("x", b"")
    assert store.status([TRAINING])[TRAINING].state == "waiting"


def test_damaged_metrics_are_named_by_line(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save("metrics.jsonl", b'{"epoch": 1, "metrics": {}}\n{"epoch": 2}\n')
    with pytest.raises(DamagedError, match=r"metrics\.jsonl:2"):
        folder.records()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("native", [False, True])
def test_a_refusing_disk_is_one_readable_line_and_loses_nothing(store, code, native):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save("last.safetensors", b"before")

    def write(path: Path) -> None:
        path.write_bytes(b"half")
        # safetensors writes in Rust and reports system errors as text
        raise RuntimeError(f"I/O error: x (os error {code})") if native else OSError(code, os.strerror(code))

    with pytest.raises(StorageError, match=os.strerror(code)) as error:
        folder.save_with("last.safetensors", write)
    assert isinstance(error.value, OSError)
    assert "last.safetensors" in str(error.value)
    assert "\n" not in str(error.value)
    assert folder.load("last.safetensors") == b"before"
    assert not list(folder.folder.glob(".*"))
    folder.save("last.safetensors", b"after")
    assert folder.load("last.safetensors") == b"after"


def test_an_error_that_is_not_the_disks_keeps_its_type(store):
    folder = store.folder(TRAINING)
    folder.claim("L")

    def write(path: Path) -> None:
        raise KeyError("weight")

    with pytest.raises(KeyError):
        folder.save_with("x", write)


def test_unwritable_store_is_one_readable_line(tmp_path):
    (tmp_path / "plain").touch()
    with pytest.raises(StorageError, match="cannot create"):
        Store(tmp_path / "plain" / "store").prepare()


def test_create_is_exclusive_without_hard_links_too(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(atomic.os, "link", refuse)
    assert atomic.create_bytes(tmp_path / "x", b"1")
    assert not atomic.create_bytes(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
