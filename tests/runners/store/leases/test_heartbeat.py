"""Drivers at work on a store: alive, dead, elsewhere, and two of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import psutil
import pytest
from goal_sweep.runners.store.leases.heartbeat import DriverRecords, Heartbeat, LeaseHeldError
from goal_sweep.runners.store.leases.processes import ProcessIdentity

from goal_sweep.goal_core.basics.sealed_json import json_bytes
from tests.helpers.paths import ROOT
from tests.helpers.store_cases import load, named, train
from tests.helpers.until import until

TRAINING = named("c" * 16)


def foreign_launch(store, launch_id, *, age=0.0, keys=(), **changes):
    """Write the record of a launch on another machine, whose processes cannot be seen from here."""
    identity = replace(ProcessIdentity.of_this_process(), host="elsewhere", machine="other boot", pid=4711)
    content = {"process": asdict(identity), "sweep": "theirs", "ttl": 60, "started": 0, **changes}
    path = store.drivers.folder / f"{launch_id}.json"
    path.write_bytes(json_bytes(content))
    (store.drivers.folder / f"{launch_id}.keys").write_bytes(json_bytes({"keys": list(keys)}))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


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
        with store.heartbeat("c") as two, pytest.raises(LeaseHeldError, match=rf"2 of the 3 .*pid {os.getpid()}.*kill"):
            two.start(["k2", "k3", "k9"])
        assert [state.launch_id for state in store.drivers.all()] == [one.id]
    with store.heartbeat("d") as after:
        after.start(["k1"])
    assert store.drivers.all() == []


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname(), "?"])
def test_no_process_is_named_to_be_killed_whose_number_may_be_anothers_here(store, host):
    process = {"user": "u", "host": host, "machine": "an earlier boot", "pid": 4711, "process_started": "1"}
    foreign_launch(store, "F", keys=["k"], process=process)
    with store.heartbeat("s") as launch, pytest.raises(LeaseHeldError) as refused:
        launch.start(["k"])
    assert ("kill 4711" in str(refused.value)) == (host == "elsewhere")
    assert ("60 s after" in str(refused.value)) == (host != "elsewhere")


def test_a_driver_that_waits_starts_when_the_one_before_it_has_ended(store, monkeypatch):
    notes: list[str] = []
    with store.heartbeat("s") as before, store.heartbeat("s") as late, store.heartbeat("s") as waiting:
        before.start(["k"])
        with pytest.raises(LeaseHeldError):
            late.start(["k"], wait_s=0.01, note=notes.append)
        monkeypatch.setattr(time, "sleep", lambda seconds: before.close())
        waiting.start(["k"], wait_s=60, note=notes.append)
        assert store.drivers.planned(waiting.id) == {"k"}
    assert [note.split(":")[0] for note in notes] == ["waiting for another launch"] * 2


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


@pytest.mark.parametrize("clock", [-600, 0, 600])
def test_a_driver_that_starts_in_the_same_instant_may_have_another_clock(store, clock):
    """Both step back. The other one does not come again here, so this one must try again."""
    theirs = time.time() + clock
    path = foreign_launch(store, "F", keys=["k"], started=theirs, renewed=theirs)
    threading.Timer(0.05, path.unlink).start()
    with store.heartbeat("s") as launch:
        launch.start(["k"])


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


@pytest.mark.parametrize("error", [psutil.NoSuchProcess, psutil.AccessDenied])
def test_a_process_that_the_system_hides_lives_by_its_heartbeat(store, monkeypatch, error):
    """What psutil and `kill` say of another user's process under `hidepid`."""

    def hidden(pid):
        raise error(pid)

    def not_yours(pid, number):
        raise PermissionError

    with store.heartbeat("theirs") as launch:
        launch.start([TRAINING.key])
        store.folder(TRAINING).claim(launch.id)
        identity = ProcessIdentity.of_this_process()
        monkeypatch.setattr(psutil, "Process", hidden)
        monkeypatch.setattr(os, "kill", not_yours)
        assert identity.exists() is None
        with store.heartbeat("mine") as mine, pytest.raises(LeaseHeldError, match="sweep theirs"):
            mine.start([TRAINING.key])
        with pytest.raises(LeaseHeldError, match="sweep theirs"):
            store.folder(TRAINING).claim("M")
        os.utime(store.drivers.folder / f"{launch.id}.json", (time.time() - 70,) * 2)
        assert store.folder(TRAINING).claim("M") == 2


def test_a_process_of_which_nobody_knows_anything_has_ended(monkeypatch):
    identity = ProcessIdentity.of_this_process()
    for pid in (0, -1, 2**22 + 1, 2**80):
        assert replace(identity, pid=pid).exists() is False
    assert replace(identity, process_started="").exists() is None


_OTHER_USER = """
set -e
mount -t proc -o hidepid=2 proc /proc
exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all,+dac_override,+dac_read_search \
     --ambient-caps=-all,+dac_override,+dac_read_search --bounding-set=-all,+dac_override,+dac_read_search "$@"
"""
_LOOK = """
import sys
from goal_sweep.runners.store import LeaseHeldError, Store
from tests.helpers.store_cases import named
store, training = Store(sys.argv[1]), named("c" * 16)
print(store.status([training])[training].state, [driver.process.exists() for driver in store.drivers.all()])
try:
    store.folder(training).claim("M")
    print("claimed")
except LeaseHeldError as error:
    print("refused")
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")),
    reason="needs root, to mount /proc and to become another user",
)
def test_another_users_living_driver_is_not_overrun_where_proc_is_hidden(store, driver):
    command = ["unshare", "-m", "sh", "-c", _OTHER_USER, "sh", sys.executable, "-c", _LOOK, str(store.root)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(store.root)}

    def seen():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
        if done.stderr.startswith(("unshare: ", "mount: ", "setpriv: ")):  # root in a container has fewer rights
            pytest.skip(f"needs the right to mount /proc and to become another user: {done.stderr.strip()}")
        return done.stdout.splitlines() or done.stderr

    record = next(iter(store.drivers.folder.glob("*.json")))
    content = json.loads(record.read_text())
    assert content["process"]["pid"] == driver.pid
    driver.send_signal(signal.SIGSTOP)  # so that only its last heartbeat shows that it lives
    record.write_bytes(json_bytes({**content, "ttl": 60}))
    assert seen() == ["running [None]", "refused"]
    os.utime(record, (time.time() - 70,) * 2)
    assert seen() == ["waiting [None]", "claimed"]


def test_heartbeat_renews_and_ends(store):
    launch = Heartbeat(store.drivers, "s", ttl=60, renew=0.05)
    launch.start()
    path = store.drivers.folder / f"{launch.id}.json"
    before = path.stat().st_mtime_ns
    until(lambda: path.stat().st_mtime_ns > before, "renewal")
    launch.close()
    time.sleep(0.15)  # three renewals of one that had not ended
    assert not list(store.drivers.folder.iterdir())


def test_heartbeat_survives_a_refusing_disk(store, monkeypatch, caplog):
    launch = Heartbeat(store.drivers, "s", ttl=60, renew=0.02)
    launch.start()

    refused: list[object] = []

    def full(*paths: object) -> None:
        refused.append(paths)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    until(lambda: len(refused) > 10, "refusals")
    monkeypatch.undo()
    assert len(caplog.records) == 1
    assert "the heartbeat of this launch fails" in caplog.text
    path = store.drivers.folder / f"{launch.id}.json"
    before = path.stat().st_mtime_ns
    until(lambda: path.stat().st_mtime_ns > before, "renewal")
    launch.close()


def test_a_damaged_launch_record_counts_as_ended_when_nobody_renews_it(store):
    path = store.drivers.folder / "x.json"
    path.write_text("{")
    assert [state.alive for state in DriverRecords(store.drivers.folder).all()] == [True]
    os.utime(path, (time.time() - 70,) * 2)
    assert [state.alive for state in DriverRecords(store.drivers.folder).all()] == [False]


_DRIVER = """
import sys, time
from pathlib import Path
from goal_sweep.runners.store import Store
store = Store(sys.argv[1])
launch = store.heartbeat("first", ttl=1, renew=0.2)
launch.start(["k" * 16])
folder = store.folder_of("c" * 16, "frozen", "k" * 16)
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
    assert process.stdout is not None
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
    (path,) = store.drivers.folder.glob("*.json")
    path.write_bytes(json_bytes({**json.loads(path.read_text()), "ttl": 3600}))  # which is not waited for
    with store.heartbeat("second") as launch:
        launch.start([TRAINING.key])
        folder = store.folder(TRAINING)
        assert folder.claim(launch.id) == 2
        assert len(store.drivers.all()) == 1
        assert folder.attempts.read(1).outcome == "lost"
        train(folder)
    assert store.status([TRAINING])[TRAINING].state == "done"


def test_a_stopped_driver_is_not_overrun_on_its_machine_and_harmless_when_it_wakes_elsewhere(store, driver):
    driver.send_signal(signal.SIGSTOP)
    process = psutil.Process(driver.pid)
    until(lambda: process.status() == psutil.STATUS_STOPPED, "stop")
    path = next(iter(store.drivers.folder.glob("*.json")))
    os.utime(path, (time.time() - 5,) * 2)  # longer ago than its time to live
    with pytest.raises(LeaseHeldError, match=f"pid {driver.pid}"):
        store.folder(TRAINING).claim("M")
    # Seen from another machine it has expired.
    content = json.loads(path.read_text())
    content["process"] |= {"machine": "another", "host": "elsewhere"}
    path.write_bytes(json_bytes(content))
    os.utime(path, (time.time() - 5,) * 2)
    successor = store.folder(TRAINING)
    assert successor.claim("M") == 2
    successor.save("x", b"second")
    driver.send_signal(signal.SIGCONT)
    driver.stdin.write("\n")
    driver.stdin.flush()
    assert driver.stdout.readline() == "LeaseLostError\n"
    assert load(successor, "x") == b"second"
    successor.save("x", b"third")


def test_the_wish_to_stop_concerns_one_launch_and_ends_with_it(store):
    with store.heartbeat("mine") as mine, store.heartbeat("theirs") as theirs:
        assert not store.drivers.is_asked_to_stop(mine.id)
        store.drivers.ask_to_stop(mine.id)
        assert store.drivers.is_asked_to_stop(mine.id)
        assert not store.drivers.is_asked_to_stop(theirs.id)
    assert not store.drivers.is_asked_to_stop(mine.id)
    assert not DriverRecords(store.root / "missing").is_asked_to_stop(mine.id)


@pytest.mark.parametrize(
    "change",
    [
        {"process": {"pid": "x"}},
        {"process": {"pid": -1}},
        {"process": {"pid": 10**400}},
        {"ttl": [60]},
        {"started": "now"},
    ],
)
def test_a_record_with_values_of_other_types_is_that_of_nobody(tmp_path, change):
    (tmp_path / "L.json").write_bytes(json_bytes({"process": {"pid": 1}, "ttl": 60, "started": 1.0, **change}))
    state = DriverRecords(tmp_path).state("L")
    assert state is not None
    assert (state.alive, state.process.pid) == (True, 0)  # the time of the file decides
