"""Carry results from one store to another and into MLflow: complete, checked, and never over a different result."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goal_core.basics.atomic import StorageError
from goal_core.basics.sealed_json import json_bytes
from runners.cli.reports import report_targets
from runners.cli.results import import_archive
from runners.launch.opened_sweep import OpenedSweep
from runners.store import archive as archives
from runners.store.archive import ArchiveError, export_results, read_archive
from runners.store.imported import MARK
from runners.store.store import Store
from sweeps import load_sweep
from tests.helpers.archive_cases import finished_sweep, import_into, rewritten, train_fully
from tests.helpers.mlflow_cases import Content
from tests.helpers.store_cases import record, result, train, write_weights
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    """Three of four trainings are finished."""
    return finished_sweep(tmp_path / "there")


@pytest.fixture
def archive(sweep: OpenedSweep, tmp_path: Path) -> Path:
    path = tmp_path / "results.zip"
    assert export_results(sweep, sweep.store, path) == (3, 4)
    return path


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "cells").rglob("*")) if path.is_file()
    }


def test_everything_but_the_weights_arrives_byte_for_byte(sweep: OpenedSweep, tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    export_results(sweep, sweep.store, archive, with_provenance=True)
    target = Store(tmp_path / "here")
    outcome = import_into(target, archive)
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


def test_an_imported_sweep_with_axes_has_its_lists_in_their_places(tmp_path: Path) -> None:
    axes = ("objectives.params={tau: [10, 1]}", "stages.finetune.lr=[1e-4,2e-4]")
    sweep = finished_sweep(tmp_path / "there", *axes)
    archive = tmp_path / "axes.zip"
    assert export_results(sweep, sweep.store, archive) == (3, 3 + 6)
    target = Store(tmp_path / "here")
    assert len(import_into(target, archive).added) == 3
    imported = load_sweep(target.root / "imported" / "scenes.yaml")
    assert imported.axes == sweep.config.axes
    assert imported.objectives == sweep.config.objectives
    again = replace(sweep, config=imported, store=target)
    assert [status.state for status in again.statuses().values()].count("done") == 3
    assert again.trainings == sweep.trainings


def test_every_imported_result_is_marked_in_the_store_and_in_its_status(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    target = Store(tmp_path / "here")
    import_into(target, archive)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    for training in sweep.trainings[:3]:
        folder = target.folder(training)
        mark = json.loads(folder.path(MARK).read_text())
        assert (mark["archive"], mark["sha256"]) == ("results.zip", sha256)
        assert target.status([training])[training].imported == f"results.zip (sha256 {sha256})"
        assert sweep.store.status([training])[training].imported == ""
    folder.path(MARK).write_text("{")
    assert target.status([training])[training].imported == "an archive (sha256 unknown)"


def test_a_result_trained_here_loses_the_mark_of_the_damaged_one_that_it_replaces(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    target = Store(tmp_path / "here")
    import_into(target, archive)
    training = sweep.trainings[0]
    folder = target.folder(training)
    folder.path("result.json").write_text("{")
    folder.claim("M")
    train(folder, 1)
    assert target.status([training])[training].imported == ""


def test_the_same_results_give_the_same_archive_and_importing_again_changes_nothing(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.zip"
    export_results(sweep, sweep.store, again)
    assert again.read_bytes() == archive.read_bytes()
    target = Store(tmp_path / "here")
    import_into(target, archive)
    before = files_of(target.root)
    outcome = import_into(target, archive)
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
        import_into(target.store, archive)
    assert files_of(target.store.root) == before


def test_what_was_begun_here_is_left_to_the_launch(archive: Path, tmp_path: Path) -> None:
    target = opened_in(tmp_path / "here")
    folder = target.store.folder(target.trainings[0])
    folder.claim("M")
    folder.write_metrics([record(1)])
    outcome = import_into(target.store, archive)
    assert (len(outcome.added), len(outcome.begun)) == (2, 1)
    assert folder.result() is None
    assert len(folder.records()) == 1


def test_an_import_adds_all_or_nothing(
    sweep: OpenedSweep, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Store(tmp_path / "here")
    real, renamed = Path.rename, 0

    def fill_up(path: Path, to: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed == 3:
            raise OSError(28, "No space left on device")
        return real(path, to)

    monkeypatch.setattr(Path, "rename", fill_up)
    with pytest.raises(StorageError, match="No space left"):
        import_into(target, archive)
    assert files_of(target.root) == {}
    assert list((target.root / "cells").iterdir()) == []
    monkeypatch.undo()
    assert len(import_into(target, archive).added) == 3


def test_a_sweep_file_that_cannot_be_written_undoes_the_import(archive: Path, tmp_path: Path) -> None:
    target = Store(tmp_path / "here")
    target.prepare()
    (target.root / "imported").write_text("in the way")
    with pytest.raises(StorageError):
        import_into(target, archive)
    assert files_of(target.root) == {}


def test_a_training_that_a_launch_begins_meanwhile_undoes_the_import(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    target = Store(tmp_path / "here")
    read = read_archive(archive)
    outcome = archives.plan_import(read, target)
    target.folder(sweep.trainings[1]).claim("M")
    before = files_of(target.root)
    with pytest.raises(ArchiveError, match=r"a launch began .* so nothing was imported"):
        archives.add_results(read, outcome, target, "sqlite:///x.db")
    assert files_of(target.root).keys() - before.keys() == {f"cells/{sweep.trainings[1].cell.id}/cell.json"}


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
    files["manifest.json"] = json_bytes(json.loads(files["manifest.json"]) | {"version": 99})


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
    with pytest.raises(ArchiveError, match="no training of 'scenes' is finished"):
        export_results(empty := opened_in(tmp_path / "empty"), empty.store, path)


def test_the_archive_says_nothing_of_where_it_was_trained(sweep: OpenedSweep, archive: Path) -> None:
    described = json.loads(read_archive(archive).files["sweep.json"])
    assert described["sweep"]["tracking"] == "sqlite:///{store}/mlflow.db"
    assert str(sweep.store.root) not in json.dumps(described)


def test_host_process_paths_logs_and_edits_leave_only_when_asked_for(tmp_path: Path) -> None:
    places = [f"model.backbones=[{{name: test_byobnet, weights: {tmp_path}/w.safetensors}}]"]
    sweep = opened_in(tmp_path / "there", *places, f"model.init_from={tmp_path}/vse.safetensors")
    folder = sweep.store.folder(sweep.trainings[0])
    folder.claim("20260101T000000Z-4711-abcd")
    folder.log(f"cannot read {tmp_path}")
    record = folder.attempts.newest()
    assert record is not None
    secret = {"host": "node17", "pid": 4711, "git_diff": "+secret", "git_diff_sha256": "ab" * 32}
    folder.attempts.update(replace(record, **secret, reason=f"read {tmp_path}/x: gone", trace=f"File {tmp_path}"))
    train_fully(folder, sweep.trainings[0].stage.epochs)
    shared, whole = tmp_path / "shared.zip", tmp_path / "whole.zip"
    export_results(sweep, sweep.store, shared)
    export_results(sweep, sweep.store, whole, with_provenance=True)
    told = {path: b" ".join(read_archive(path).files.values()).decode(errors="replace") for path in (shared, whole)}
    for word in ("node17", "4711", "+secret", str(tmp_path)):
        assert word not in told[shared]
        assert word in told[whole]
    assert "ab" * 32 in told[shared]
    assert not [name for name in read_archive(shared).files if name.endswith("log.txt")]
    keys = [[one.key for one in read_archive(path).finished] for path in (shared, whole)]
    assert keys[0] == keys[1] == [sweep.trainings[0].key]


@pytest.mark.integration
def test_an_import_fills_mlflow_and_leaves_a_sweep_file_to_report_by(
    sweep: OpenedSweep, archive: Path, tmp_path: Path, empty_database: Path
) -> None:
    root = tmp_path / "here"
    root.mkdir()
    shutil.copy(empty_database, root / "mlflow.db")
    lines: list[str] = []
    import_archive(archive, str(root), None, lines.append)
    assert lines[0] == "scenes: 3 results added, 0 were there already"
    (target,) = report_targets([lines[-1].rpartition(" ")[2]], [])
    assert (target.name, target.uri) == ("scenes", f"sqlite:///{root / 'mlflow.db'}")
    content = Content(target.uri, "scenes")
    assert len(content.children) == 3
    assert {run.data.tags["goal.status"] for run in content.children} == {"done"}
    assert json.loads(content.parents[0].data.tags["goal.seeds"]) == [1]
    dump = content.dump()
    lines.clear()
    import_archive(archive, str(root), None, lines.append)
    assert lines[0] == "scenes: 0 results added, 3 were there already"
    assert Content(target.uri, "scenes").dump() == dump
