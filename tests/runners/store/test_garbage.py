"""What `gc` lists and removes: what nobody needs, and never what somebody does."""

import os
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.machine import process_tag
from goal_sweep.runners.store import LAST, Store
from goal_sweep.runners.store.garbage import Garbage, find_garbage, remove_garbage
from tests.helpers.store_cases import claimed, named, record, result_of, train, write_weights

DONE, BEGUN = named("a" * 16, "d" * 16), named("b" * 16, "e" * 16)
BOTH = [DONE, BEGUN]


@pytest.fixture
def filled(any_store: Store) -> Store:
    """One training is finished, whose process died before it removed what nobody needs; another is interrupted."""
    for training in BOTH:
        any_store.write_cell(training.cell)
    folder = train(claimed(any_store.folder(DONE)))
    for name, size in ((LAST, 1000), ("best-1.safetensors", 10)):
        any_store.storage.replace(folder.folder / name, b"x" * size)
    begun = claimed(any_store.folder(BEGUN))
    begun.save_with(LAST, write_weights)
    begun.write_metrics([record(1)])
    begun.end("interrupted", "stopped")
    return any_store


def names(garbage: list[Garbage]) -> set[tuple[str, str]]:
    return {(one.kind, path.name) for one in garbage for path in one.files}


def everything(store: Store) -> dict[Path, int]:
    return {path: written.bytes for path, written in store.storage.files(store._base, below=True).items()}


def test_only_what_nobody_needs_is_listed_and_listing_changes_nothing(filled: Store) -> None:
    before = everything(filled)
    (states,) = find_garbage(filled, BOTH)
    assert everything(filled) == before
    assert (states.kind, states.what, states.bytes) == ("states", DONE.name, 1010)
    assert {path.name: size for path, size in states.files.items()} == {LAST: 1000, "best-1.safetensors": 10}


def test_removing_leaves_every_result_and_every_state_that_is_continued(filled: Store) -> None:
    before = everything(filled)
    (removed,) = remove_garbage(filled, BOTH)
    assert everything(filled) == {path: size for path, size in before.items() if path not in removed.files}
    done = filled.folder(DONE)
    assert (
        filled.storage.digest(done.place("best.safetensors")) == result_of(done)["files"]["best.safetensors"]["sha256"]
    )
    assert filled.status([BEGUN])[BEGUN].epochs == 1
    assert find_garbage(filled, BOTH) == []


def test_a_damaged_training_keeps_all(filled: Store) -> None:
    filled.storage.replace(filled.folder(DONE).folder / "result.json", b"damaged")
    assert find_garbage(filled, BOTH) == []


def test_nothing_is_removed_while_one_is_trained(filled: Store) -> None:
    filled.folder(BEGUN).claim("another launch")
    before = everything(filled)
    with pytest.raises(GoalError, match=rf"trained by .*pid {os.getpid()}.*nothing was removed"):
        remove_garbage(filled, BOTH)
    assert everything(filled) == before


def test_features_stay_as_long_as_a_training_that_the_store_knows_is_not_finished(filled: Store) -> None:
    filled.features.mkdir(parents=True, exist_ok=True)
    (filled.features / "train-0.safetensors").write_bytes(b"x" * 100)
    assert "features" not in {one.kind for one in find_garbage(filled, [DONE])}
    train(claimed(filled.folder(BEGUN), "M"))
    assert ("features", "train-0.safetensors") in names(find_garbage(filled, [DONE]))


def test_interrupted_writes_of_dead_processes_are_leftovers_and_those_of_the_living_are_not(store: Store) -> None:
    folder = train(claimed(store.folder(DONE)))
    dead = folder.folder / f".{LAST}.{process_tag().partition('-')[0]}-999999999-0.tmp"
    living = folder.folder / f".{LAST}.{process_tag()}-0.tmp"
    for path in (dead, living):
        path.write_bytes(b"x")
    assert names(remove_garbage(store, [DONE])) == {("leftovers", dead.name)}
    assert (living.exists(), dead.exists()) == (True, False)
