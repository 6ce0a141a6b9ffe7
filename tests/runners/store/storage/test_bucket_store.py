"""A store in a bucket keeps what a store in a folder promises: fences, results last, damage found, nothing to take."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import asdict, replace

import pytest
from goal_sweep.runners.store.archive import export_results
from goal_sweep.runners.store.leases.processes import ProcessIdentity
from goal_sweep.runners.store.verification import damaged_files
from tests.helpers.archive_cases import finished_sweep, import_into

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.checkpoints import BEST, LAST
from goal_sweep.runners.store import LeaseHeldError, LeaseLostError, Store
from goal_sweep.runners.store.storage import place
from tests.helpers.store_cases import load, named, record, result, result_of, train, write_weights
from tests.helpers.sweep_cases import opened_in
from tests.helpers.until import until

TRAINING = named("c" * 16)


def elsewhere(store: Store) -> Store:
    """The same store, as a process on another machine opens it: without this one's working copies."""
    place._bucket.cache_clear()
    return Store(store.location)


def keys(store: Store) -> set[str]:
    return {path.relative_to(store._base).as_posix() for path in store.storage.files(store._base, below=True)}


def test_the_layout_is_that_of_a_folder(bucket_store):
    folder = bucket_store.folder(TRAINING)
    bucket_store.write_cell(TRAINING.cell)
    folder.claim("L")
    folder.log("hello")
    train(folder)
    stage = f"cells/{TRAINING.cell.id}/frozen-{TRAINING.key}"
    names = ("metrics.1.jsonl", "best-3.1.safetensors", "log.1.txt", "attempts/1.json", "result.json")
    assert keys(bucket_store) == {
        "store.json",
        f"cells/{TRAINING.cell.id}/cell.json",
        *(f"{stage}/{name}" for name in names),
    }
    assert elsewhere(bucket_store).status([TRAINING], thorough=True)[TRAINING].state == "done"


@pytest.mark.exhaustive
def test_an_attempt_elsewhere_continues_from_what_has_arrived(bucket_store):
    first = bucket_store.folder(TRAINING)
    first.claim("L")
    first.save_with(LAST, lambda path: write_weights(path, 1.0))
    second = elsewhere(bucket_store).folder(TRAINING)
    assert second.claim("M") == 2
    states = list(second.versions(LAST))
    assert [path.name for path in states] == ["last.1.safetensors"]
    assert states[0].read_bytes() == first.path(LAST).read_bytes()
    assert second.path(LAST) == states[0]


def test_late_writes_of_a_process_that_was_cut_off_do_not_arrive(bucket_store, server):
    first = bucket_store.folder(TRAINING)
    first.claim("L")
    first.save("x", b"first")
    second = elsewhere(bucket_store).folder(TRAINING)
    second.claim("M")
    with pytest.raises(LeaseLostError, match=r"attempt 1 .* attempt 2"):
        first.save("x", b"late")
    for write in (lambda: first.save("y", b"late"), lambda: first.finish(result()), lambda: first.fail("late")):
        with pytest.raises(LeaseLostError):
            write()
    assert load(second, "x") == b"first"
    train(second)
    assert result_of(elsewhere(bucket_store).folder(TRAINING))["attempt"] == 2


@pytest.mark.exhaustive
def test_a_result_comes_after_everything_that_it_states(bucket_store, server):
    """With every upload slowed down, the result is still the last object but the end of the attempt."""
    folder = bucket_store.folder(TRAINING)
    folder.claim("L")

    def slowly(method: str, path: str) -> str:
        time.sleep(0.02)
        return ""

    server.before = slowly
    server.requests.clear()
    train(folder)
    written = [path.rpartition("/")[2] for method, path in server.requests if method == "PUT"]
    done = written.index("result.json")
    assert {"best-3.1.safetensors", "last.1.safetensors", "metrics.1.jsonl"} <= set(written[:done])
    assert written[done + 1 :] == ["1.json"]


def test_a_training_says_that_it_waits_for_the_server(bucket_store, server):
    folder, gate = bucket_store.folder(TRAINING), threading.Event()
    folder.claim("L")
    server.before = lambda method, path: gate.wait(20) and "" if method == "PUT" and "last" in path else ""
    saving = threading.Thread(target=lambda: folder.save(LAST, b"epoch 1"))
    saving.start()
    until(lambda: folder.is_waiting, "the upload")
    assert not folder.has_progressed()
    gate.set()
    saving.join(timeout=20)
    assert not folder.is_waiting
    assert load(folder, LAST) == b"epoch 1"


def test_a_save_that_fails_leaves_the_version_before(bucket_store, server):
    folder = bucket_store.folder(TRAINING)
    folder.claim("L")
    folder.save(LAST, b"epoch 1")
    server.before = lambda method, path: "denied" if method == "PUT" and "last" in path else ""
    with pytest.raises(StorageError):
        folder.save(LAST, b"epoch 2")
    server.before = lambda method, path: ""
    assert load(folder, LAST) == b"epoch 1"


def foreign(store: Store, launch_id: str, *, ttl: float, planned: str) -> None:
    """The record of a driver on another machine."""
    identity = replace(ProcessIdentity.of_this_process(), host="far", machine="other boot", pid=4711)
    content = {"process": asdict(identity), "sweep": "theirs", "ttl": ttl, "started": 0}
    store.storage.replace(store.drivers.folder / f"{launch_id}.json", json_bytes(content))
    store.storage.replace(store.drivers.folder / f"{launch_id}.keys", json_bytes({"keys": [planned]}))


@pytest.mark.exhaustive
def test_a_second_driver_is_refused_by_name_and_takes_over_after_expiry(bucket_store):
    foreign(bucket_store, "theirs", ttl=60, planned=TRAINING.key)
    bucket_store.folder(TRAINING).claim("theirs")
    here = elsewhere(bucket_store)
    with here.heartbeat("mine") as launch:
        with pytest.raises(LeaseHeldError, match=r"already being done by .*@far \(pid 4711, sweep theirs"):
            launch.start([TRAINING.key])
        with pytest.raises(LeaseHeldError, match="being trained by"):
            here.folder(TRAINING).claim(launch.id)
    assert here.status([TRAINING])[TRAINING].state == "running"
    foreign(here, "theirs", ttl=0.5, planned=TRAINING.key)
    until(lambda: here.status([TRAINING])[TRAINING].state == "waiting", "end of the lease")
    with here.heartbeat("mine") as launch:
        launch.start([TRAINING.key])
        assert here.folder(TRAINING).claim(launch.id) == 2


@pytest.mark.exhaustive
def test_a_flipped_bit_is_found_and_named(bucket_store):
    folder = bucket_store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    path = folder.place(BEST)
    content = bytearray(bucket_store.storage.read(path))
    content[len(content) // 2] ^= 1
    bucket_store.storage.replace(path, bytes(content))
    here = elsewhere(bucket_store)
    (line,) = damaged_files(here, [TRAINING])
    assert line.endswith("best-3.1.safetensors is damaged: its content does not match its checksum")
    assert f"s3://bucket/{here.location.rpartition('/')[2]}/cells" in line
    assert here.status([TRAINING], thorough=True)[TRAINING].damaged
    aside = here.set_aside(TRAINING, "damaged")
    assert aside is not None
    assert aside.name == f"frozen-{TRAINING.key}.damaged-1"
    assert here.status([TRAINING])[TRAINING].state == "waiting"
    assert here.storage.exists(aside / "result.json")


@pytest.mark.exhaustive
def test_status_changes_nothing(bucket_store, server):
    folder = bucket_store.folder(TRAINING)
    folder.claim("L")
    folder.write_metrics([record(1)])
    server.requests.clear()
    assert bucket_store.status([TRAINING])[TRAINING].attempts == 1
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}


@pytest.mark.exhaustive
def test_results_travel_between_a_folder_and_a_bucket(bucket_store, tmp_path):
    sweep = finished_sweep(tmp_path / "there")
    one, two = tmp_path / "one.tar.gz", tmp_path / "two.tar.gz"
    export_results(sweep, sweep.store, one)
    import_into(bucket_store, one)
    again = import_into(elsewhere(bucket_store), one)
    assert (len(again.added), len(again.known)) == (0, 3)
    export_results(sweep, elsewhere(bucket_store), two)
    import_into(third := Store(tmp_path / "third"), two)
    for training in sweep.trainings[:3]:
        there, here = (result_of(store.folder(training)) for store in (third, sweep.store))
        assert there["metrics"] == here["metrics"]


@pytest.mark.exhaustive
def test_nothing_that_is_sent_or_stored_holds_credentials(bucket_store, monkeypatch):
    secret = "wJalrXUtnFEMI-not-a-real-secret"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = elsewhere(bucket_store)
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.log("hello")
    train(folder)
    stored = [store.storage.read(path) for path in store.storage.files(store._base, below=True)]
    assert stored
    assert all(content is not None and secret.encode() not in content for content in stored)


def test_a_sweep_takes_a_bucket_as_its_store(server, tmp_path):
    sweep = opened_in("s3://bucket/sweep")
    assert sweep.store.location == "s3://bucket/sweep"
    assert sweep.store.root.is_relative_to(tmp_path / "cache")
    identity = hashlib.sha256(b"bucket sweep").hexdigest()[:8]
    assert sweep.store.root.name == f"bucket-sweep-{identity}"
    assert sweep.config.tracking == "sqlite:///{store}/mlflow.db"
