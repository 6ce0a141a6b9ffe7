from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from goal_core import atomic
from runners.store import BEST, Store, digest
from runners.store.attempts import AttemptFolder
from runners.store.heartbeat import DriverRecords, Heartbeat, LeaseHeldError, ProcessIdentity
from runners.store.lease import LeaseLostError
from runners.store.training_folder import AlreadyDoneError
from tests.helpers.paths import ROOT
from tests.helpers.store_cases import named, record, result, train, write_weights

TRAINING = named("c" * 16)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def foreign_launch(store, launch_id, *, age=0.0, keys=(), **changes):
    """Write the record of a launch on another machine, whose processes cannot be seen from here."""
    identity = replace(ProcessIdentity.of_this_process(), host="elsewhere", machine="other boot", pid=4711)
    content = {**asdict(identity), "launch_id": launch_id, "sweep": "theirs", "ttl": 60, "started": 0, **changes}
    path = store.drivers.folder / f"{launch_id}.json"
    path.write_text(json.dumps(content))
    (store.drivers.folder / f"{launch_id}.keys").write_text("\n".join(keys))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


# Attempts and their owners.


def test_attempts_count_up_and_each_fences_the_one_before(store):
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    assert first.claim("L") == 1
    first.save("x", b"first")
    assert second.claim("L") == 2
    for write in (
        lambda: first.save("x", b"late"),
        lambda: first.save_with("best.safetensors", write_weights),
        lambda: first.write_metrics([record(1)]),
        lambda: first.fail("late"),
        lambda: first.discard("x"),
    ):
        with pytest.raises(LeaseLostError, match=r"attempt 1 .* attempt 2"):
            write()
    assert second.load("x") == b"first"
    assert not list(second.folder.glob(".*"))
    second.save("x", b"second")
    one, two = second.attempts.all()
    assert (one.outcome, one.charged, two.outcome) == ("lost", False, "running")


def test_late_finish_is_refused(store):
    first, second = store.folder(TRAINING), store.folder(TRAINING)
    first.claim("L")
    first.save_with("best.safetensors", write_weights)
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
    assert second.load("x") == b"old"


def test_a_damaged_or_stale_pointer_is_put_right_by_the_owner(store):
    owner = store.folder(TRAINING)
    owner.claim("L")
    for content in ("", "{", '{"launch_id": "L", "attempt": 0}', '{"launch_id": "M", "attempt": 1}'):
        owner.path("lease.json").write_text(content)
        owner.save("x", b"1")
        assert json.loads(owner.path("lease.json").read_text()) == {"launch_id": "L", "attempt": 1}
    owner.path("lease.json").unlink()
    owner.save("x", b"2")
    assert owner.load("x") == b"2"


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
    done.save_with("best.safetensors", write_weights)
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


# The records of drivers.


def test_a_living_launch_is_named_and_not_overrun(store):
    with store.heartbeat("mine") as launch:
        launch.start([TRAINING.key])
        store.folder(TRAINING).claim(launch.id)
        with pytest.raises(
            LeaseHeldError, match=rf"being trained by .*pid {os.getpid()}, sweep mine, last sign of life \d"
        ):
            store.folder(TRAINING).claim("other")
    assert store.folder(TRAINING).claim("other") == 2


def test_second_driver_of_the_same_sweep_is_refused_at_the_start(store):
    with store.heartbeat("a") as one:
        one.start(["k1", "k2", "k3"])
        with store.heartbeat("b") as disjoint:
            disjoint.start(["k4"])
        time.sleep(0.1)
        began = time.monotonic()
        with store.heartbeat("c") as two, pytest.raises(LeaseHeldError, match=rf"2 of the 3 .*pid {os.getpid()}.*kill"):
            two.start(["k2", "k3", "k9"])
        assert time.monotonic() - began < 10
        assert [state.launch_id for state in store.drivers.all()] == [one.id]
    with store.heartbeat("d") as after:
        after.start(["k1"])
    assert store.drivers.all() == []


def test_drivers_started_in_the_same_instant_do_not_both_run(store):
    start, running = threading.Barrier(2), []

    def drive():
        launch = store.heartbeat("s")
        start.wait()
        try:
            launch.start(["k"])
        except LeaseHeldError:
            return
        running.append(launch)

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(running) <= 1
    for launch in running:
        launch.close()


@pytest.mark.parametrize(
    ("age", "taken_over"), [(0, False), (50, False), (70, True), (-50, False), (-86_400, True), (86_400, True)]
)
def test_a_launch_elsewhere_lives_by_its_heartbeat(store, age, taken_over):
    """A record a day in the future counts as dead: a living launch whose clock was set back would have renewed it."""
    foreign_launch(store, "F", age=age)
    store.folder(TRAINING).claim("F")
    if taken_over:
        assert store.folder(TRAINING).claim("M") == 2
    else:
        with pytest.raises(LeaseHeldError, match=r"@elsewhere \(pid 4711, sweep theirs"):
            store.folder(TRAINING).claim("M")


def test_this_machines_clock_does_not_matter_to_a_claim(store, monkeypatch):
    foreign_launch(store, "F")
    store.folder(TRAINING).claim("F")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400)
    with pytest.raises(LeaseHeldError):
        store.folder(TRAINING).claim("M")


def test_a_process_of_this_machine_lives_whatever_the_clock_says(store):
    with store.heartbeat("s") as launch:
        launch.start()
        store.folder(TRAINING).claim(launch.id)
        path = store.drivers.folder / f"{launch.id}.json"
        for age in (86_400, -86_400):
            os.utime(path, (time.time() - age,) * 2)
            with pytest.raises(LeaseHeldError):
                store.folder(TRAINING).claim("M")


def test_a_recycled_process_number_is_not_the_launch(store):
    identity = ProcessIdentity.of_this_process()
    assert identity.exists() is True
    assert replace(identity, process_started="1").exists() is False
    assert replace(identity, pid=2**22 + 1).exists() is False
    assert replace(identity, machine="another boot").exists() is None
    assert replace(identity, host="elsewhere").exists() is None


def test_heartbeat_renews_and_ends(store):
    launch = Heartbeat(store.drivers.folder, "s", ttl=60, renew=0.05)
    launch.start()
    path = store.drivers.folder / f"{launch.id}.json"
    before = path.stat().st_mtime_ns
    deadline = time.monotonic() + 5
    while path.stat().st_mtime_ns == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.stat().st_mtime_ns > before
    launch.close()
    time.sleep(0.15)
    assert not list(store.drivers.folder.iterdir())


def test_heartbeat_survives_a_refusing_disk(store, monkeypatch, caplog):
    launch = Heartbeat(store.drivers.folder, "s", ttl=60, renew=0.02)
    launch.start()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "replace", full)
    time.sleep(0.2)
    monkeypatch.undo()
    assert len(caplog.records) == 1
    assert "the heartbeat of this launch fails" in caplog.text
    path = store.drivers.folder / f"{launch.id}.json"
    before = path.stat().st_mtime_ns
    time.sleep(0.2)
    assert path.stat().st_mtime_ns > before
    launch.close()


def test_damaged_launch_record_counts_as_ended(store):
    (store.drivers.folder / "x.json").write_text("{")
    assert DriverRecords(store.drivers.folder).all() == []


# Real processes.

_DRIVER = """
import sys, time
from pathlib import Path
from runners.store import BEST, Store, digest
from tests.helpers.store_cases import named
store, training = Store(sys.argv[1]), named("c" * 16)
launch = store.heartbeat("first", ttl=1, renew=0.2)
launch.start([training.key])
folder = store.folder(training)
folder.claim(launch.id)
folder.save("x", b"first")
print("ready", flush=True)
sys.stdin.readline()
try:
    folder.save("x", b"zombie")
except ValueError as error:
    print(type(error).__name__, flush=True)
else:
    print("written", flush=True)
"""


@pytest.fixture
def driver(store):
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(store.root)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_killed_driver_is_succeeded_at_once(store, driver):
    with store.heartbeat("second") as launch:
        with pytest.raises(LeaseHeldError, match=f"pid {driver.pid}"):
            launch.start([TRAINING.key])
    driver.kill()
    driver.wait()
    with store.heartbeat("second") as launch:
        began = time.monotonic()
        launch.start([TRAINING.key])
        folder = store.folder(TRAINING)
        assert folder.claim(launch.id) == 2
        assert time.monotonic() - began < 1
        assert len(store.drivers.all()) == 1
        assert folder.attempts.read(1).outcome == "lost"
        train(folder)
    assert store.status([TRAINING])[TRAINING].state == "done"


def test_a_stopped_driver_is_not_overrun_on_its_machine_and_harmless_when_it_wakes_elsewhere(store, driver):
    driver.send_signal(signal.SIGSTOP)
    time.sleep(1.3)  # longer than its time to live
    with pytest.raises(LeaseHeldError, match=f"pid {driver.pid}"):
        store.folder(TRAINING).claim("M")
    # Seen from another machine it has expired.
    path = next(iter(store.drivers.folder.glob("*.json")))
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": "another", "host": "elsewhere"}))
    os.utime(path, (time.time() - 5,) * 2)
    successor = store.folder(TRAINING)
    assert successor.claim("M") == 2
    successor.save("x", b"second")
    driver.send_signal(signal.SIGCONT)
    driver.stdin.write("\n")
    driver.stdin.flush()
    assert driver.stdout.readline() == "LeaseLostError\n"
    assert successor.load("x") == b"second"
    successor.save("x", b"third")


# Crash points.


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


def crash_at(monkeypatch, number):
    """Die at the given crash point, counted from 1. Returns the names of the points that were passed."""
    passed = []

    def point(name):
        passed.append(name)
        if len(passed) == number:
            raise Dead

    monkeypatch.setattr(atomic, "crash_point", point)
    return passed


def test_every_crash_point_leaves_a_store_that_goes_on(tmp_path, monkeypatch):
    """Kill a claim, its checkpoints, metrics and result at every step: no file is wrong, and the next attempt ends."""
    survived, number = False, 0
    while not survived:
        number += 1
        store = Store(tmp_path / str(number))
        store.prepare()
        with monkeypatch.context() as patch:
            passed = crash_at(patch, number)
            patch.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has this number: the writer will be dead
            folder = store.folder(TRAINING)
            try:
                store.write_cell(TRAINING.cell)
                folder.claim("killed")
                train(folder, 2)
                survived = True
            except Dead:
                pass
        check_nothing_wrong_is_readable(store)
        if survived:
            break
        died_done = store.status([TRAINING])[TRAINING].state == "done"
        successor = store.folder(TRAINING)
        store.write_cell(TRAINING.cell)
        if not died_done:
            successor.claim("next")
            train(successor, 2)
        assert store.status([TRAINING])[TRAINING].state == "done", passed[-1]
        weights = successor.path(BEST)
        assert digest(weights) == successor.result()["files"][BEST]["sha256"]
        assert store.read_cell(TRAINING.cell.id) == TRAINING.cell.describe()
        assert [attempt.charged for attempt in successor.attempts.all() if attempt.charged] == []
        if not died_done:
            assert not [path for path in successor.folder.rglob("*.tmp")]
    assert number > 40
    assert len(set(passed)) > 20


def check_nothing_wrong_is_readable(store):
    folder = store.folder(TRAINING)
    status = store.status([TRAINING])[TRAINING]
    assert not status.damaged
    assert len(folder.records()) in (0, 1, 2)
    for path in folder.folder.rglob("*.json"):
        json.loads(path.read_text())
    if status.state == "done":
        assert digest(folder.path(BEST)) == folder.result()["files"][BEST]["sha256"]


def test_launch_dies_at_every_point_of_its_start(tmp_path, monkeypatch):
    for number in range(1, 30):
        store = Store(tmp_path / str(number))
        store.prepare()
        with monkeypatch.context() as patch:
            passed = crash_at(patch, number)
            launch = store.heartbeat("s")
            # Make the record that of a dead process, because this process is still alive.
            launch._content["process_started"] = "never"
            try:
                launch.start([TRAINING.key])
            except Dead:
                pass
            else:
                launch._stop.set()
        with store.heartbeat("s") as next_launch:
            next_launch.start([TRAINING.key])
            assert store.folder(TRAINING).claim(next_launch.id) == 1
        if len(passed) < number:
            break
    assert number > 6


def test_leftovers_go_only_when_their_writer_is_dead(tmp_path):
    host, dead = atomic._HOST, 2**22 + 1
    names = {
        f".x.{host}-{dead}-0.tmp": False,
        f".best.safetensors.{host}-{os.getpid()}-3.tmp": True,
        ".x.other-host-9-1.tmp": True,
        ".old.other-host-9-2.tmp": False,
        ".foreign.tmp": True,
        "best.safetensors": True,
    }
    for name in names:
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.other-host-9-2.tmp", (time.time() - 7200,) * 2)
    atomic.remove_leftovers(tmp_path)
    assert {name: (tmp_path / name).exists() for name in names} == names
