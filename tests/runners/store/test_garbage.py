"""What `gc` lists and removes: what nobody needs, and never what somebody does."""

from __future__ import annotations

import os

import pytest

from goal_sweep.goal_core.basics.machine import process_tag
from goal_sweep.goal_core.checkpoints import LAST
from goal_sweep.runners.store import LeaseHeldError, Store
from goal_sweep.runners.store.garbage import find_garbage, remove_garbage
from tests.helpers.store_cases import named, record, train, write_weights

DONE, BEGUN = named("a" * 16, "d" * 16), named("b" * 16, "e" * 16)


@pytest.fixture
def store(store_of_trainings):
    """One training is finished, on its second attempt, after one of them was set aside; another is interrupted."""
    any_store = store_of_trainings
    for training in (DONE, BEGUN):
        any_store.write_cell(training.cell)
    folder = any_store.folder(DONE)
    folder.claim("L")
    train(folder)
    any_store.set_aside(DONE)
    folder = any_store.folder(DONE)
    folder.claim("L")
    train(folder)
    begun = any_store.folder(BEGUN)
    begun.claim("L")
    begun.save_with(LAST, write_weights)
    begun.write_metrics([record(1)])
    begun.release("interrupted")
    return any_store


def leave_a_state(store):
    """As a process that dies right after its result leaves it."""
    path = store.folder(DONE).folder / "last.1.safetensors"
    store.storage.replace(path, b"x" * 1000)
    store.storage.replace(path.with_name("best-1.1.safetensors"), b"x" * 10)
    return path


def names(garbage):
    return {(one.kind, path.name) for one in garbage for path in one.files}


def everything(store):
    return {path: written.bytes for path, written in store.storage.files(store._base, below=True).items()}


def test_only_what_nobody_needs_is_listed_and_listing_changes_nothing(store):
    leave_a_state(store)
    before = everything(store)
    found = find_garbage(store, [DONE, BEGUN])
    assert everything(store) == before
    states = next(one for one in found if one.kind == "states")
    assert states.what == DONE.name
    assert {path.name: size for path, size in states.files.items()} == {
        "last.1.safetensors": 1000,
        "best-1.1.safetensors": 10,
    }
    aside = next(one for one in found if one.kind == "set aside")
    assert aside.what == f"{DONE.name}: frozen-{DONE.key}.replaced-1"
    assert {"result.json", "best-3.1.safetensors", "1.json"} <= {path.name for path in aside.files}
    assert len(found) == 2


def test_removing_leaves_every_result_and_every_state_that_is_continued(store):
    state = leave_a_state(store)
    removed = remove_garbage(store, "s", [DONE, BEGUN])
    assert ("states", "last.1.safetensors") in names(removed)
    assert not store.storage.exists(state)
    assert not any(".replaced-" in str(path) for path in everything(store))
    status = store.status([DONE, BEGUN], thorough=True)
    assert status[DONE].state == "done"
    assert store.folder(BEGUN).progressed(1)
    assert find_garbage(store, [DONE, BEGUN]) == []
    assert store.drivers.all() == []


def test_a_damaged_training_keeps_all(store):
    leave_a_state(store)
    store.storage.replace(store.folder(DONE).place("best.safetensors"), b"short")
    assert "states" not in {one.kind for one in find_garbage(store, [DONE, BEGUN])}


def test_nothing_is_removed_while_a_launch_works_on_the_store(store):
    leave_a_state(store)
    with store.heartbeat("other") as launch:
        launch.start(["unrelated"])
        before = everything(store)
        with pytest.raises(LeaseHeldError, match=rf"in use by .*pid {os.getpid()}, sweep other.*nothing was removed"):
            remove_garbage(store, "s", [DONE, BEGUN])
        assert everything(store) == before


def test_features_stay_as_long_as_a_training_that_the_store_knows_is_not_finished(store):
    store.features.mkdir(parents=True, exist_ok=True)
    (store.features / "train-0.safetensors").write_bytes(b"x" * 100)
    assert "features" not in {one.kind for one in find_garbage(store, [DONE])}
    folder = store.folder(BEGUN)
    folder.claim("M")
    train(folder)
    assert ("features", "train-0.safetensors") in names(find_garbage(store, [DONE]))


def test_interrupted_writes_of_dead_processes_are_leftovers_and_those_of_the_living_are_not(tmp_path):
    store = Store(tmp_path / "store")
    store.prepare()
    folder = store.folder(DONE)
    folder.claim("L")
    train(folder)
    dead = folder.folder / f".last.1.safetensors.{process_tag().partition('-')[0]}-999999999-0.tmp"
    living = folder.folder / f".last.1.safetensors.{process_tag()}-0.tmp"
    for path in (dead, living):
        path.write_bytes(b"x")
    found = find_garbage(store, [DONE])
    assert names(found) == {("leftovers", dead.name)}
    remove_garbage(store, "s", [DONE])
    assert living.exists()
    assert not dead.exists()
