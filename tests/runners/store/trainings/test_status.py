"""How far trainings are, as the store tells it."""

from __future__ import annotations

import os
import time

import pytest
from goal_sweep.runners.store.leases.lease import LeaseLostError

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import LAST, Store
from tests.helpers.store_cases import named, record, train, write_result

TRAINING = named("c" * 16)


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
        running.save(LAST, b"the state after two epochs")
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
    saved = store.status([trainings["running"]])[trainings["running"]]
    assert (saved.state, saved.epochs) == ("waiting", 2)


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
        write_result(folder.folder)
    began = time.process_time()
    assert all(status.state == "done" for status in store.status(trainings).values())
    assert time.process_time() - began < 5  # takes about 20 ms; the bound only catches a worse order of growth


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
