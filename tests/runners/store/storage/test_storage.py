"""What both kinds of storage keep: whole files, exclusive creation, guards, listings."""

from unittest.mock import Mock

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import Store
from goal_sweep.runners.store.storage import Storage
from tests.helpers.until import until


@pytest.fixture
def storage(any_store: Store) -> Storage:
    return any_store.storage


@pytest.fixture
def place(any_store):
    folder = any_store.folder_of("c", "frozen", "k").folder
    any_store.storage.make_folder(folder)
    return folder


def save(storage, path, content, guard=lambda: None):
    storage.save_with(path, lambda fresh: fresh.write_bytes(content) and None, guard=guard)


def test_a_file_is_replaced_whole_and_created_once(storage, place):
    path = place / "a.json"
    assert storage.read(path) is None
    assert storage.create(path, b"one")
    assert not storage.create(path, b"two")
    assert storage.read(path) == b"one"
    storage.replace(path, b"three")
    assert storage.read(path) == b"three"
    assert storage.written(path).bytes == 5
    assert storage.written(place / "b.json") is None
    storage.remove(path)
    storage.remove(path)
    assert storage.read(path) is None


def test_a_guard_that_raises_keeps_a_file_from_being_created(storage, place):
    with pytest.raises(KeyError):
        storage.create(place / "b.json", b"new", guard=Mock(side_effect=KeyError("gone")))
    assert storage.read(place / "b.json") is None


def test_folders_are_listed_by_name(storage, place):
    for name in ("a", "sub/b", "sub/deep/c"):
        storage.make_folder((place / name).parent)
        storage.replace(place / name, name.encode())
    assert sorted(storage.entries(place)) == [place / "a", place / "sub"]
    assert sorted(storage.entries(place / "sub")) == [place / "sub" / "b", place / "sub" / "deep"]
    assert storage.entries(place / "none") == []
    assert {path: one.bytes for path, one in storage.files(place, below=True).items()} == {
        place / "a": 1,
        place / "sub/b": 5,
        place / "sub/deep/c": 10,
    }
    assert storage.files(place)[place / "a"].bytes == 1
    assert storage.files(place / "sub") == {place / "sub" / "b": storage.written(place / "sub" / "b")}


def test_what_is_saved_is_there(storage, place):
    for number in range(5):
        save(storage, place / f"best-{number}.bin", b"%d" % number)
        save(storage, place / "last.bin", b"%d" % number)
        if number:
            storage.remove(place / f"best-{number - 1}.bin")
    assert sorted(path.name for path in storage.files(place, below=True)) == ["best-4.bin", "last.bin"]
    assert storage.read(place / "last.bin") == b"4"
    assert storage.digest(place / "last.bin") == "4b227777d4dd1fc61c6f884f48641d02b4d121d3fd328cb08b5531fcacdabf8a"
    assert storage.fetch(place / "best-4.bin").read_bytes() == b"4"
    assert not storage.fetch(place / "none.bin").exists()


def test_a_refused_save_is_raised_and_replaces_nothing(storage, place):
    with pytest.raises(KeyError):
        save(storage, place / "last.bin", b"late", guard=Mock(side_effect=KeyError("refused")))
    assert storage.read(place / "last.bin") is None
    save(storage, place / "last.bin", b"next")
    assert storage.read(place / "last.bin") == b"next"


def test_a_file_has_the_time_of_the_storages_clock(storage, place):
    path = place / "1.json"
    assert storage.seen(path) == 0
    storage.replace(path, b"{}")
    assert abs(storage.now(place) - storage.seen(path)) < 60


def test_a_line_is_added_to_a_log(any_store, storage, place):
    folder = any_store.folder_of("c", "frozen", "k")
    for attempt in (1, 2):
        storage.append(folder.folder / "log.txt", f"attempt {attempt}\n".encode(), writer=attempt)
        storage.append(folder.folder / "log.txt", b"more\n", writer=attempt)
    assert folder.log_text() == "attempt 1\nmore\nattempt 2\nmore\n"
    assert sum(folder.logs().values()) == len(folder.log_text())


def test_a_file_that_another_process_writes_appears(storage, place):
    path = place / "x.stop"
    assert not storage.appeared(path)
    storage.replace(path, b"")
    until(lambda: storage.appeared(path), "file")


def test_an_error_while_listing_is_one_of_storage(bucket_store, server):
    server.before = lambda method, path: "denied"
    with pytest.raises(StorageError, match=r"cannot list s3://bucket/.*AccessDenied"):
        bucket_store.cell_folders()
