"""The results folder: layout, refusals, cells, and trainings that are set aside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.sealed_json import read_json
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store import Store
from tests.helpers.store_cases import named, train

TRAINING = named("c" * 16)


def test_layout_is_the_documented_one(store):
    folder = store.folder(TRAINING)
    store.write_cell(TRAINING.cell)
    folder.claim("L")
    train(folder)
    folder.log("hello")
    root = store.root
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    stage = f"cells/{TRAINING.cell.id}/frozen-{TRAINING.key}"
    names = (
        "metrics.1.jsonl",
        "best-3.1.safetensors",
        "log.txt",
        "attempts/1.json",
        "result.json",
    )
    assert files == {"store.json", f"cells/{TRAINING.cell.id}/cell.json", *(f"{stage}/{name}" for name in names)}


@pytest.mark.parametrize(
    "location", ["gs://bucket/x", "s3://", "s3://bucket/x?region=eu", "s3://key@bucket/x", "s3://bucket/../x"]
)
def test_other_locations_are_refused_in_one_line(location):
    with pytest.raises(StorageError, match=r"must be .*s3://bucket/prefix") as error:
        Store(location)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("version", "said"), [(99, "a later version.*layout 99.*upgrade"), (2, "an earlier development version.*layout 2")]
)
def test_a_store_of_another_version_is_refused_in_one_line(tmp_path, capsys, version, said):
    (tmp_path / "store.json").write_text(f'{{"version": {version}, "checksum": "of another kind"}}')
    with pytest.raises(StorageError, match=said):
        Store(tmp_path)
    assert run(["status", "quickstart", "--store", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_damaged_version_does_not_keep_anybody_out(store):
    (store.root / "store.json").write_text("{")
    Store(store.root).prepare()
    assert read_json(store.root / "store.json") == {"version": 5, "id": store.id}


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is a file"):
        Store(tmp_path / "file")


def test_relative_root_does_not_follow_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("here")
    monkeypatch.chdir("/")
    store.prepare()
    assert (tmp_path / "here" / "cells").is_dir()


def test_cell_description_is_written_once_and_a_damaged_one_again(store):
    cell = TRAINING.cell
    store.write_cell(cell)
    store.write_cell(replace(cell, seed=2))
    path = store.root / "cells" / cell.id / "cell.json"
    assert read_json(path) == cell.describe()
    assert cell.describe()["seed"] == 1
    path.write_text('{"se')
    store.write_cell(replace(cell, seed=3))
    assert (read_json(path) or {})["seed"] == 3


def test_a_training_that_is_set_aside_is_done_again_and_nothing_is_lost(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    train(folder)
    aside = store.set_aside(TRAINING)
    assert aside is not None
    assert (aside / "best-3.1.safetensors").exists()
    assert store.status([TRAINING])[TRAINING].state == "waiting"
    assert store.set_aside(TRAINING) is None


def test_unwritable_store_is_one_readable_line(tmp_path):
    (tmp_path / "plain").touch()
    with pytest.raises(StorageError, match="cannot create"):
        Store(tmp_path / "plain" / "store").prepare()
