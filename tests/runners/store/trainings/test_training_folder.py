"""What a training's folder takes and gives back, and what it makes of damage and of disks that refuse."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
from goal_sweep.runners.store.leases.lease import LeaseLostError

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.store import AlreadyDoneError
from tests.helpers.store_cases import load, named, record, result, train, write_result, write_weights

TRAINING = named("c" * 16)


def test_what_is_saved_is_read_back(store):
    folder = store.folder(TRAINING)
    assert load(folder, "best.safetensors") is None
    folder.claim("L")
    folder.save("x.bin", b"one")
    folder.save("x.bin", b"two")
    assert load(folder, "x.bin") == b"two"
    assert folder.path("x.bin").read_bytes() == b"two"
    special = {"a": float("nan"), "b": float("-inf"), "c": 1e-17}
    folder.write_metrics([record(1), {"epoch": 2, "time": 1.0, "metrics": special}])
    first, second = folder.records()
    assert first == record(1)
    assert str(second["metrics"]["a"]) == "nan"
    assert second["metrics"]["b"] == float("-inf")
    assert second["metrics"]["c"] == 1e-17
    for line in (load(folder, "metrics.jsonl") or b"").splitlines():
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


def test_where_no_result_can_be_written_an_attempt_fails_for_the_storage(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    (folder.folder / "result.json").symlink_to("nowhere")
    with pytest.raises(StorageError, match="link to nowhere"):
        train(folder)


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
    late = (lambda: folder.save("x", b""), lambda: folder.discard("x"), lambda: folder.finish(result()))
    for write in (*late, lambda: folder.fail("late")):
        with pytest.raises(LeaseLostError, match="ended"):
            write()
    with pytest.raises(AlreadyDoneError):
        store.folder(TRAINING).claim("L")
    assert load(folder, "last.safetensors") is None
    assert load(folder, "best.safetensors") is not None


def test_writing_without_a_claim_is_a_bug(store):
    with pytest.raises(RuntimeError, match="claim"):
        store.folder(TRAINING).save("x", b"")


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-4])])
def test_no_result_without_whole_weights(store, spoil):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best-3.safetensors", write_weights)
    spoil(folder.path("best-3.safetensors"))
    with pytest.raises((StorageError, DamagedError), match=r"best"):
        folder.finish(result())
    assert folder.result() is None
    assert store.status([TRAINING])[TRAINING].state != "done"


def test_result_of_another_attempt_is_not_overwritten(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best-3.safetensors", write_weights)
    write_result(folder.folder, best_epoch=1)
    theirs = folder.path("result.json").read_bytes()
    with pytest.raises(LeaseLostError, match="another attempt"):
        folder.finish(result(test_rsum=2.0))
    assert folder.path("result.json").read_bytes() == theirs


def test_folder_travels_to_another_process(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    copy = pickle.loads(pickle.dumps(folder))
    copy.save("x", b"1")
    assert load(folder, "x") == b"1"


def test_driver_writes_down_the_end_of_a_dead_worker(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    assert not store.folder(TRAINING).end_for("other launch", "failed", "killed", charged=True)
    assert store.folder(TRAINING).end_for("L", "failed", "killed by signal 9", charged=True)
    assert not store.folder(TRAINING).end_for("L", "lost", "again", charged=False)
    attempt = store.folder(TRAINING).attempts.newest()
    assert (attempt.outcome, attempt.reason, attempt.charged) == ("failed", "killed by signal 9", True)


def test_damaged_metrics_are_named_by_line(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    whole = json_bytes(record(1), indent=None)
    for second in (b'{"epoch": 2}\n', json_bytes({"epoch": 2}, indent=None), whole.replace(b"10.0", b"11.0")):
        folder.save("metrics.jsonl", whole + second)
        with pytest.raises(DamagedError, match=r"metrics\.1\.jsonl:2"):
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
    assert "last.1.safetensors" in str(error.value)
    assert "\n" not in str(error.value)
    assert load(folder, "last.safetensors") == b"before"
    assert not list(folder.folder.glob(".*"))
    folder.save("last.safetensors", b"after")
    assert load(folder, "last.safetensors") == b"after"


def test_an_error_that_is_not_the_disks_keeps_its_type(store):
    folder = store.folder(TRAINING)
    folder.claim("L")

    def write(path: Path) -> None:
        raise KeyError("weight")

    with pytest.raises(KeyError):
        folder.save_with("x", write)
