"""Who may train and write: one process at a time, by the newest attempt's record."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import Attempt, ClaimedError, ClaimLostError, Store, TrainingFolder
from goal_sweep.runners.store import training as training_module
from goal_sweep.runners.store.attempts import RENEW_S, STALE_S, AttemptFolder
from goal_sweep.runners.store.training import renewed
from tests.helpers.forked import FORK, exit_status, forked
from tests.helpers.store_cases import claimed, load, named, record, result, result_of, save, train, write_weights
from tests.helpers.until import until

TRAINING = named("c" * 16)
NOBODY = 2**22 + 1
"""A number that no process has."""


def claimed_elsewhere(store: Store, **changes: Any) -> TrainingFolder:
    """A training that a process of another machine has claimed, which cannot be seen from here."""
    folder = claimed(store.folder(TRAINING), "theirs")
    assert folder.attempt is not None
    own = {"host": "far", "machine": "another boot", "pid": 4711, **changes}
    folder.attempt = replace(folder.attempt, **own)
    folder.attempts.write(folder.attempt)
    return folder


def aged(folder: TrainingFolder, seconds: float) -> None:
    """Let the newest record of an attempt have been written so long ago."""
    path = folder.attempts.folder / f"{folder.attempts.numbers()[-1]}.json"
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_living_trainer_is_named_and_not_overrun(any_store: Store) -> None:
    first, second = any_store.folder(TRAINING), any_store.folder(TRAINING)
    first.claim("mine")
    with pytest.raises(ClaimedError, match=rf"is trained by .*\(pid {os.getpid()}\)"):
        second.claim("other")
    first.end("interrupted", "its launch was stopped")
    second.claim("other")
    assert [one.outcome for one in second.attempts.all()] == ["interrupted", "running"]


def test_of_many_that_claim_at_once_one_succeeds(any_store: Store) -> None:
    start, ends = threading.Barrier(6), list[Any]()

    def claim(number: int) -> None:
        folder = any_store.folder(TRAINING)
        start.wait()
        try:
            folder.claim(f"launch {number}")
        except ClaimedError as refused:
            ends.append(refused)
        else:
            ends.append(folder)

    threads = [threading.Thread(target=claim, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (owner,) = [end for end in ends if isinstance(end, TrainingFolder)]
    assert len(ends) == 6
    assert owner.attempts.numbers() == [1]
    save(owner, "x", b"1")


@pytest.mark.parametrize(
    ("age", "is_free"), [(0, False), (100, False), (130, True), (-100, False), (-86_400, True), (86_400, True)]
)
def test_a_claim_of_another_machine_lives_by_the_age_of_its_record(store: Store, age: float, is_free: bool) -> None:
    """A record a day in the future counts as given up: a living process would have renewed it."""
    theirs = claimed_elsewhere(store)
    aged(theirs, age)
    assert (store.status([TRAINING])[TRAINING].state == "running") is not is_free
    if is_free:
        store.folder(TRAINING).claim("mine")
        with pytest.raises(ClaimLostError):
            theirs.renew()
    else:
        with pytest.raises(ClaimedError, match=r"@far \(pid 4711\)"):
            store.folder(TRAINING).claim("mine")


@pytest.mark.parametrize("clock", [-86_400, 86_400])
def test_the_clock_of_this_machine_does_not_matter(any_store: Store, monkeypatch: pytest.MonkeyPatch, clock: float):
    claimed_elsewhere(any_store)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + clock)
    with pytest.raises(ClaimedError):
        any_store.folder(TRAINING).claim("mine")


def test_a_claim_that_nobody_renews_is_free_in_a_bucket_too(bucket_store: Store, monkeypatch: pytest.MonkeyPatch):
    claimed_elsewhere(bucket_store)
    monkeypatch.setattr("goal_sweep.runners.store.attempts.STALE_S", 1.0)

    def is_claimed() -> bool:
        with contextlib.suppress(ClaimedError):
            bucket_store.folder(TRAINING).claim("mine")
        return bucket_store.folder(TRAINING).attempts.numbers() == [1, 2]

    until(is_claimed, "end of the claim")


@pytest.mark.parametrize("change", [{"pid": NOBODY}, {"process_started": "1"}])
def test_a_claim_of_a_process_that_has_ended_is_free_at_once(any_store: Store, change: dict[str, Any]) -> None:
    """Also where another process has its number by now."""
    here = Attempt.of_this_process(1, "L")
    claimed_elsewhere(any_store, **{"machine": here.machine, "pid": here.pid, **change})
    any_store.folder(TRAINING).claim("mine")


def test_a_process_that_the_system_hides_lives_by_its_record(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's process under `hidepid`."""
    folder = claimed(store.folder(TRAINING), "theirs")
    read = Path.read_text

    def hidden(path: Path, *how: Any) -> str:
        if path.match("/proc/*/stat"):
            raise FileNotFoundError(path)
        return read(path, *how)

    monkeypatch.setattr(Path, "read_text", hidden)
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    with pytest.raises(ClaimedError):
        store.folder(TRAINING).claim("mine")
    aged(folder, STALE_S + 1)
    store.folder(TRAINING).claim("mine")


def holds(store: Store, is_ready: Any, goes_on: Any, ended: Any) -> None:
    """Claim a training; later, write to it."""
    folder = claimed(store.folder(TRAINING), "theirs")
    save(folder, "x", b"first")
    is_ready.set()
    goes_on.wait(100)
    try:
        save(folder, "x", b"late")
    except ClaimLostError:
        ended.set()


def test_a_killed_process_frees_its_training_at_once(store: Store) -> None:
    is_ready, never = FORK.Event(), FORK.Event()
    process = forked(holds, store, is_ready, never, never)
    assert is_ready.wait(100)
    with pytest.raises(ClaimedError, match=f"pid {process.pid}"):
        store.folder(TRAINING).claim("mine")
    process.kill()
    zombie = psutil.Process(process.pid)
    until(lambda: zombie.status() == psutil.STATUS_ZOMBIE, "end")  # nobody has waited for it yet
    folder = claimed(store.folder(TRAINING), "mine")
    assert folder.attempts.all()[0].outcome == "lost"
    train(folder)
    assert store.status([TRAINING])[TRAINING].state == "done"
    exit_status(process)


def test_a_suspended_process_writes_nothing_when_it_wakes_after_another_took_over(store: Store) -> None:
    is_ready, goes_on, is_refused = FORK.Event(), FORK.Event(), FORK.Event()
    process = forked(holds, store, is_ready, goes_on, is_refused)
    assert is_ready.wait(100)
    os.kill(process.pid or 0, signal.SIGSTOP)
    suspended = psutil.Process(process.pid)
    until(lambda: suspended.status() == psutil.STATUS_STOPPED, "stop")
    folder = store.folder(TRAINING)
    aged(folder, 2 * STALE_S)
    with pytest.raises(ClaimedError):  # seen from its own machine, it lives
        folder.claim("mine")
    newest = folder.attempts.newest()
    assert newest is not None
    folder.attempts.write(replace(newest, machine="another boot"))
    aged(folder, 2 * STALE_S)
    folder.claim("mine")
    save(folder, "x", b"second")
    os.kill(process.pid or 0, signal.SIGCONT)
    goes_on.set()
    assert exit_status(process) == 0
    assert is_refused.is_set()
    assert load(folder, "x") == b"second"


LATE: dict[str, Callable[[TrainingFolder], object]] = {
    "save": lambda folder: save(folder, "x", b"late"),
    "metrics": lambda folder: folder.write_metrics([record(1)]),
    "result": lambda folder: folder.finish(result()),
    "discard": lambda folder: folder.discard("x"),
    "end": lambda folder: folder.end("failed", "late"),
    "renew": lambda folder: folder.renew(),
}


def test_late_writes_are_refused_and_change_nothing(any_store: Store) -> None:
    late, owner = any_store.folder(TRAINING), any_store.folder(TRAINING)
    late.claim("L")
    save(late, "x", b"first")
    late.save_with("best-3.safetensors", write_weights)
    owner.claim("L")
    for write in LATE.values():
        with pytest.raises(ClaimLostError):
            write(late)
        late.attempt = late.attempt or replace(owner.attempts.all()[0])  # which an end forgets
    assert load(owner, "x") == b"first"
    assert not list(owner.folder.glob(".*"))
    assert owner.records() == []
    train(owner)
    assert result_of(owner)["attempt"] == 2
    assert [one.outcome for one in owner.attempts.all()] == ["lost", "done"]


def test_a_succession_between_content_and_rename_is_seen(store: Store) -> None:
    """The most likely moment for a process to be suspended."""
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    first.claim("L")
    save(first, "x", b"old")

    def slowly(path: Path) -> None:
        path.write_bytes(b"zombie")
        second.claim("L")

    with pytest.raises(ClaimLostError):
        first.save_with("x", slowly)
    assert load(second, "x") == b"old"


def test_a_finished_training_cannot_be_claimed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done, late = store.folder(TRAINING), store.folder(TRAINING)
    done.claim("gone")
    newest = AttemptFolder.newest

    def finishes_first(self: AttemptFolder) -> Attempt | None:
        """Between the claimant's look for a result and its claim."""
        monkeypatch.setattr(AttemptFolder, "newest", newest)
        train(done)
        return newest(self)

    monkeypatch.setattr(AttemptFolder, "newest", finishes_first)
    with pytest.raises(ClaimedError, match="is done"):
        late.claim("mine")
    assert store.status([TRAINING])[TRAINING].state == "done"
    assert [one.outcome for one in done.attempts.all()] == ["done", "interrupted"]
    with pytest.raises(ClaimedError, match="is done"):
        store.folder(TRAINING).claim("mine")


@pytest.mark.parametrize("content", ["", "{", '{"n": 1, "launch": "M"}'])
def test_the_owner_goes_on_if_its_record_is_damaged_and_mends_it(store: Store, content: str) -> None:
    owner = claimed(store.folder(TRAINING))
    (owner.attempts.folder / "1.json").write_text(content)
    save(owner, "x", b"1")
    owner.renew()
    assert [one.outcome for one in owner.attempts.all()] == ["running"]
    train(owner)
    assert store.status([TRAINING])[TRAINING].state == "done"


def test_a_claim_is_renewed_while_its_block_lasts_whatever_the_disk_does(store: Store, monkeypatch: pytest.MonkeyPatch):
    assert RENEW_S * 4 < STALE_S
    monkeypatch.setattr(training_module, "RENEW_S", 0.01)
    folder, refusals = store.folder(TRAINING), list[Attempt]()
    folder.claim("L")
    path = folder.attempts.folder / "1.json"

    def written() -> int:
        return path.stat().st_mtime_ns

    def full(attempts: AttemptFolder, attempt: Attempt) -> None:
        refusals.append(attempt)
        raise StorageError("No space left on device")

    with renewed([folder]):
        for _ in range(2):
            before = written()
            until(lambda: written() > before, "renewal")  # noqa: B023
            with monkeypatch.context() as patch:
                patch.setattr(AttemptFolder, "write", full)
                until(lambda: len(refusals) > 3, "refusals")
    time.sleep(0.05)
    before = written()
    time.sleep(0.1)
    assert written() == before
