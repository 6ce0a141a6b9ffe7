"""Attempts and their owners: who may write, and who is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from goal_sweep.runners.store.leases.lease import LeaseLostError
from goal_sweep.runners.store.records.attempts import AttemptFolder

from goal_sweep.runners.store import AlreadyDoneError
from tests.helpers.store_cases import load, named, record, result, train, write_weights

TRAINING = named("c" * 16)


def test_attempts_count_up_and_each_fences_the_one_before(store):
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    assert first.claim("L") == 1
    first.save("x", b"first")
    assert second.claim("L") == 2
    for write in (
        lambda: first.save("x", b"late"),
        lambda: first.save_with("best-3.safetensors", write_weights),
        lambda: first.write_metrics([record(1)]),
        lambda: first.fail("late"),
        lambda: first.discard("x"),
    ):
        with pytest.raises(LeaseLostError, match=r"attempt 1 .* attempt 2"):
            write()
    assert load(second, "x") == b"first"
    assert not list(second.folder.glob(".*"))
    second.save("x", b"second")
    one, two = second.attempts.all()
    assert (one.outcome, one.charged, two.outcome) == ("lost", False, "running")


def test_late_finish_is_refused(store):
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    first.claim("L")
    first.save_with("best-3.safetensors", write_weights)
    second.claim("M")
    with pytest.raises(LeaseLostError):
        first.finish(result())
    assert second.result() is None
    train(second)
    assert second.result()["attempt"] == 2


def test_succession_between_content_and_rename_is_seen(store):
    """The most likely moment for a process to be suspended: its content is written, but not renamed into place yet."""
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    first.claim("L")
    first.save("x", b"old")

    def slow_write(path: Path) -> None:
        path.write_bytes(b"zombie")
        second.claim("L")

    with pytest.raises(LeaseLostError):
        first.save_with("x", slow_write)
    assert load(second, "x") == b"old"


@pytest.mark.parametrize("content", ["", "{", '{"n": 1, "launch_id": "M"}'])
def test_the_owner_goes_on_if_its_record_is_damaged(store, content):
    owner = store.folder(TRAINING)
    owner.claim("L")
    owner.attempts.path(1).write_text(content)
    owner.save("x", b"1")
    assert load(owner, "x") == b"1"
    train(owner)
    assert store.status([TRAINING])[TRAINING].state == "done"


def test_an_attempt_in_a_folder_that_was_set_aside_and_begun_anew_owns_nothing(store):
    """Its number is in use again."""
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    first.claim("L")
    store.set_aside(TRAINING)
    assert second.claim("M") == 1
    with pytest.raises(LeaseLostError):
        first.save("x", b"late")
    second.save("x", b"own")
    assert load(second, "x") == b"own"


def test_one_of_many_claimants_wins_each_number(store):
    """Threads of one launch claim at the same time. Every number is given once, and one thread ends up as the owner."""
    folders = [store.folder(TRAINING) for _ in range(8)]
    start, claimed = threading.Barrier(8), []

    def claim(folder):
        start.wait()
        try:
            claimed.append(folder.claim("L"))
        except LeaseLostError:
            claimed.append(None)

    threads = [threading.Thread(target=claim, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [number for number in claimed if number]
    assert len(set(numbers)) == len(numbers)
    owners = []
    for folder in folders:
        try:
            folder.save("x", b"")
        except (LeaseLostError, RuntimeError):
            continue
        owners.append(folder)
    assert [owner.attempt for owner in owners] == [8]


def test_finishing_first_beats_a_claim(store):
    done = store.folder(TRAINING)
    done.claim("L")
    train(done)
    with pytest.raises(AlreadyDoneError):
        store.folder(TRAINING).claim("M")
    assert done.attempts.numbers() == [1]


def test_a_claim_on_a_stage_that_finishes_meanwhile_ends_itself(store, monkeypatch):
    done, late = store.folder(TRAINING), store.folder(TRAINING)
    done.claim("gone")
    done.save_with("best-3.safetensors", write_weights)
    real = AttemptFolder.newest

    def finish_first(self):
        monkeypatch.setattr(AttemptFolder, "newest", real)
        done.finish(result())
        return real(self)

    monkeypatch.setattr(AttemptFolder, "newest", finish_first)
    with pytest.raises(AlreadyDoneError):
        late.claim("M")
    assert store.status([TRAINING])[TRAINING].state == "done"
    assert late.attempts.newest().outcome == "interrupted"
