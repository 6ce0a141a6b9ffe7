"""Carry results from one store to another and into MLflow: complete, checked, and never over a different result."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_core.training.triplet_histogram import TRIPLETS
from runners.cli.reports import report_targets
from runners.cli.results import import_archive
from runners.launch.opened_sweep import OpenedSweep
from runners.store.archive import ArchiveError, export_results, import_results, read_archive
from runners.store.store import Store
from tests.helpers.mlflow_cases import Content, template
from tests.helpers.store_cases import npz, record, result, train, write_weights
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    """Three of four trainings are finished."""
    sweep = opened_in(tmp_path / "there")
    for training in sweep.trainings[:3]:
        folder = sweep.store.folder(training)
        folder.claim("L")
        folder.save(TRIPLETS, npz("record"))
        folder.log("hello")
        train(folder, 2)
    return sweep


@pytest.fixture
def archive(sweep: OpenedSweep, tmp_path: Path) -> Path:
    path = tmp_path / "results.zip"
    assert export_results(sweep, sweep.store, path) == (3, 4)
    return path


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "cells").rglob("*")) if path.is_file()
    }


def test_everything_but_the_weights_arrives_byte_for_byte(sweep: OpenedSweep, archive: Path, tmp_path: Path) -> None:
    target = Store(tmp_path / "here")
    outcome = import_results(read_archive(archive), target)
    assert (len(outcome.added), outcome.known, outcome.begun) == (3, [], [])
    theirs = {name: data for name, data in files_of(sweep.store.root).items() if not name.endswith(".safetensors")}
    carried = {name: data for name, data in theirs.items() if not name.endswith(("lease.json", "owner.json"))}
    here = files_of(target.root)
    plain = {re.sub(r"\.\d+\.(jsonl|npz)$", r".\1", name): data for name, data in carried.items()}
    assert {name: here.get(name) for name in plain if "cell.json" not in name} == {
        name: data for name, data in plain.items() if "cell.json" not in name
    }
    assert not [name for name in here if name.endswith(".safetensors")]
    states = [status.state for status in target.status(sweep.trainings).values()]
    assert sorted(states) == ["done", "done", "done", "waiting"]


def test_the_same_results_give_the_same_archive_and_importing_again_changes_nothing(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.zip"
    export_results(sweep, sweep.store, again)
    assert again.read_bytes() == archive.read_bytes()
    target = Store(tmp_path / "here")
    import_results(read_archive(archive), target)
    before = files_of(target.root)
    outcome = import_results(read_archive(archive), target)
    assert (outcome.added, len(outcome.known)) == ([], 3)
    assert files_of(target.root) == before
    assert not [path for path in target.root.rglob(".*import*")]


def test_a_different_result_is_never_replaced_and_nothing_else_is_added(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    target = opened_in(tmp_path / "here")
    folder = target.store.folder(target.trainings[0])
    folder.claim("M")
    folder.save_with("best.safetensors", write_weights)
    folder.write_metrics([record(1)])
    folder.finish(result(1, test_rsum=77.0))
    before = files_of(target.store.root)
    expected = r"different results.* con/con test_byobnet seed 1 \(frozen\).* 77 in the store and 42"
    with pytest.raises(ArchiveError, match=expected):
        import_results(read_archive(archive), target.store)
    assert files_of(target.store.root) == before


def test_what_was_begun_here_is_left_to_the_launch(archive: Path, tmp_path: Path) -> None:
    target = opened_in(tmp_path / "here")
    folder = target.store.folder(target.trainings[0])
    folder.claim("M")
    folder.write_metrics([record(1)])
    outcome = import_results(read_archive(archive), target.store)
    assert (len(outcome.added), len(outcome.begun)) == (2, 1)
    assert folder.result() is None
    assert len(folder.records()) == 1


def rewritten(archive: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    with zipfile.ZipFile(archive) as zipped:
        files = {name: zipped.read(name) for name in zipped.namelist()}
    change(files)
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return archive


def damage(files: dict[str, bytes]) -> None:
    name = next(name for name in files if name.endswith("result.json"))
    files[name] = files[name].replace(b"42.0", b"99.0")


def lose(files: dict[str, bytes]) -> None:
    del files[next(name for name in files if name.endswith("metrics.jsonl"))]


def escape(files: dict[str, bytes]) -> None:
    files["../../evil.json"] = b"{}"


def smuggle(files: dict[str, bytes]) -> None:
    files["cells/0000000000000000/cell.json"] = b"{}"


def later(files: dict[str, bytes]) -> None:
    files["manifest.json"] = json.dumps(json.loads(files["manifest.json"]) | {"version": 99}).encode()


def no_manifest(files: dict[str, bytes]) -> None:
    del files["manifest.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, r"result\.json is damaged \(SHA-256 differs\)"),
        (lose, r"metrics\.jsonl is missing"),
        (escape, r"evil\.json does not belong in an archive"),
        (smuggle, "is not in the manifest"),
        (later, "upgrade goal-sweep"),
        (no_manifest, "not an archive of results"),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(
    archive: Path, change: Callable[[dict[str, bytes]], None], said: str
) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_archive(rewritten(archive, change))


def test_a_file_that_is_no_archive_and_a_sweep_without_results_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(ArchiveError, match="not an archive of results"):
        read_archive(path)
    with pytest.raises(ArchiveError, match="no training of 'quickstart' is finished"):
        export_results(empty := opened_in(tmp_path / "empty"), empty.store, path)


def test_the_archive_says_nothing_of_where_it_was_trained(sweep: OpenedSweep, archive: Path) -> None:
    described = json.loads(read_archive(archive).files["sweep.json"])
    assert described["sweep"]["tracking"] == "sqlite:///{store}/mlflow.db"
    assert str(sweep.store.root) not in json.dumps(described)


@pytest.mark.integration
def test_an_import_fills_mlflow_and_leaves_a_sweep_file_to_report_by(
    sweep: OpenedSweep, archive: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path / "here"
    root.mkdir()
    shutil.copy(template(tmp_path_factory.mktemp("tracking")), root / "mlflow.db")
    lines: list[str] = []
    import_archive(archive, str(root), None, lines.append)
    assert lines[0] == "quickstart: 3 results added, 0 were there already"
    (target,) = report_targets([lines[-1].rpartition(" ")[2]], [])
    assert (target.name, target.uri) == ("quickstart", f"sqlite:///{root / 'mlflow.db'}")
    content = Content(target.uri, "quickstart")
    assert len(content.children) == 3
    assert {run.data.tags["goal.status"] for run in content.children} == {"done"}
    assert json.loads(content.parents[0].data.tags["goal.seeds"]) == [1]
    dump = content.dump()
    lines.clear()
    import_archive(archive, str(root), None, lines.append)
    assert lines[0] == "quickstart: 0 results added, 3 were there already"
    assert Content(target.uri, "quickstart").dump() == dump
