"""The results folder: its layout, what it refuses, and the descriptions of cells."""

from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.files import read_json
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store import Store
from goal_sweep.sweeps.identity import to_mapping
from tests.helpers.store_cases import named, train

TRAINING = named("c" * 16)


def test_the_layout_is_the_documented_one(any_store: Store) -> None:
    folder = any_store.folder(TRAINING)
    any_store.write_cell(TRAINING.cell)
    folder.claim("L")
    folder.log("hello")
    train(folder)
    stage = f"cells/{TRAINING.cell.id}/frozen-{TRAINING.key}"
    log = "log.txt" if folder.folder.exists() and any_store.location.startswith("/") else "log.1.txt"
    names = ("metrics.jsonl", "best-3.safetensors", log, "attempts/1.json", "result.json")
    found = any_store.storage.files(any_store._base, below=True)
    assert {path.relative_to(any_store._base).as_posix() for path in found} == {
        "store.json",
        f"cells/{TRAINING.cell.id}/cell.json",
        *(f"{stage}/{name}" for name in names),
    }


def test_a_store_of_another_version_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store.json").write_text('{"version": 99, "checksum": "of another kind"}')
    with pytest.raises(StorageError, match="layout 99"):
        Store(tmp_path)
    assert run(["status", "quickstart", "--store", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_damaged_version_does_not_keep_anybody_out(store: Store) -> None:
    path = store.root / "store.json"
    stated = read_json(path)
    path.write_text("{")
    Store(store.root).prepare()
    assert read_json(path) == stated


def test_a_relative_root_does_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("here")
    monkeypatch.chdir("/")
    store.prepare()
    assert (tmp_path / "here" / "cells").is_dir()


def test_what_is_no_folder_is_one_readable_line(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(StorageError, match="is a file"):
        Store(tmp_path / "plain")
    with pytest.raises(StorageError, match="cannot create"):
        Store(tmp_path / "plain" / "store").prepare()


def test_a_cells_description_is_written_once_and_a_damaged_one_again(store: Store) -> None:
    cell = TRAINING.cell
    store.write_cell(cell)
    store.write_cell(replace(cell, seed=2))
    path = store.root / "cells" / cell.id / "cell.json"
    assert read_json(path) == {"label": cell.label, **to_mapping(cell)}
    path.write_text('{"se')
    store.write_cell(replace(cell, seed=3))
    assert (read_json(path) or {})["seed"] == 3


def test_the_wish_to_stop_concerns_one_launch_and_ends_with_it(store: Store) -> None:
    for launch in ("mine", "theirs"):
        assert not store.sees_launch(launch)
        store.begin_launch(launch)
    store.ask_to_stop("mine")
    asked = [store.is_asked_to_stop(launch) for launch in ("mine", "theirs", "unknown")]
    assert asked == [True, False, False]
    store.end_launch("mine")
    assert not store.is_asked_to_stop("mine")
    assert [store.sees_launch(launch) for launch in ("mine", "theirs")] == [False, True]
