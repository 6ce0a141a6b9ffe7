"""Carry results from one store to another and into MLflow: complete, checked, and never over a different result."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from goal_sweep.runners.store.archive import ArchiveError, add_results, export_results, opened_archive, plan_import

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.runners.cli.app import run as goal_sweep
from goal_sweep.runners.cli.reports import report_targets
from goal_sweep.runners.store import LeaseHeldError, Store
from goal_sweep.sweeps import load_sweep
from tests.helpers.archive_cases import files_in, finished_sweep, import_into, train_fully
from tests.helpers.mlflow_cases import Content
from tests.helpers.store_cases import record, result, train, write_weights
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    """Three of four trainings are finished."""
    return finished_sweep(tmp_path / "there")


@pytest.fixture
def archive(sweep: OpenedSweep, tmp_path: Path) -> Path:
    path = tmp_path / "results.tar.gz"
    assert export_results(sweep, sweep.store, path) == (3, 4)
    return path


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "cells").rglob("*")) if path.is_file()
    }


def test_everything_but_the_weights_arrives_byte_for_byte(sweep: OpenedSweep, tmp_path: Path) -> None:
    archive = tmp_path / "all.tar.gz"
    export_results(sweep, sweep.store, archive)
    target = Store(tmp_path / "here")
    outcome = import_into(target, archive)
    assert (len(outcome.added), outcome.known, outcome.begun) == (3, [], [])
    left = (".safetensors", "log.txt")
    theirs = {name: data for name, data in files_of(sweep.store.root).items() if not name.endswith(left)}
    here = files_of(target.root)
    assert here.keys() - theirs.keys() == {f"cells/{cell}/cell.json" for cell in {one.cell.id for one in outcome.added}}
    assert [name for name in theirs if name.endswith(("jsonl", "npz")) and here[name] != theirs[name]] == []
    assert sum(name.endswith("result.json") for name in here) == 3
    states = [status.state for status in target.status(sweep.trainings, thorough=True).values()]
    assert sorted(states) == ["done", "done", "done", "waiting"]


def test_an_imported_sweep_with_axes_has_its_lists_in_their_places(tmp_path: Path) -> None:
    axes = ("objectives.params={tau: [10, 1]}", "stages.finetune.lr=[1e-4,2e-4]")
    sweep = finished_sweep(tmp_path / "there", *axes)
    archive = tmp_path / "axes.tar.gz"
    assert export_results(sweep, sweep.store, archive) == (3, 3 + 6)
    target = Store(tmp_path / "here")
    assert len(import_into(target, archive).added) == 3
    imported = load_sweep(target.root / "imported" / "scenes.yaml")
    assert imported.axes == sweep.config.axes
    assert imported.objectives == sweep.config.objectives
    again = replace(sweep, config=imported, store=target)
    assert [status.state for status in again.statuses().values()].count("done") == 3
    assert again.trainings == sweep.trainings


def test_every_imported_result_says_where_it_came_from(sweep: OpenedSweep, archive: Path, tmp_path: Path) -> None:
    target = Store(tmp_path / "here")
    import_into(target, archive)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    for training in sweep.trainings[:3]:
        assert target.status([training])[training].imported == f"results.tar.gz (sha256 {sha256})"
        assert sweep.store.status([training])[training].imported == ""


def test_a_result_trained_here_does_not_say_so(sweep: OpenedSweep, archive: Path, tmp_path: Path) -> None:
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
    again = tmp_path / "again.tar.gz"
    export_results(sweep, sweep.store, again)
    assert again.read_bytes() == archive.read_bytes()
    target = Store(tmp_path / "here")
    import_into(target, archive)
    before = files_of(target.root)
    outcome = import_into(target, archive)
    assert (outcome.added, len(outcome.known)) == ([], 3)
    assert files_of(target.root) == before
    assert not [path for path in target.root.rglob(".*import*")]


def test_what_was_imported_can_be_exported_again(sweep: OpenedSweep, archive: Path, tmp_path: Path) -> None:
    target = Store(tmp_path / "here")
    import_into(target, archive)
    assert export_results(sweep, target, tmp_path / "second.tar.gz") == (3, 4)
    third = Store(tmp_path / "third")
    import_into(third, tmp_path / "second.tar.gz")
    assert "second.tar.gz" in third.status(sweep.trainings)[sweep.trainings[0]].imported


def test_a_different_result_is_never_replaced_and_nothing_else_is_added(archive: Path, tmp_path: Path) -> None:
    target = opened_in(tmp_path / "here")
    folder = target.store.folder(target.trainings[0])
    folder.claim("M")
    folder.save_with("best-1.safetensors", write_weights)
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


def test_an_import_that_was_cut_short_anywhere_is_completed_by_the_next(
    sweep: OpenedSweep, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Store(tmp_path / "whole")
    import_into(whole, archive)
    for number in range(len(files_of(whole.root))):
        target = Store(tmp_path / f"cut-{number}")
        left = iter(range(number))

        def fill_up(name: str, path: Path, target: Store = target, left: Iterator[int] = left) -> None:
            if name == "rename" and path.is_relative_to(target.root / "cells") and next(left, None) is None:
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(atomic, "before_operation", fill_up)
            with pytest.raises(StorageError, match="No space left"):
                import_into(target, archive)
        assert not any(status.damaged for status in target.status(sweep.trainings, thorough=True).values())
        assert import_into(target, archive).begun == []
        assert files_of(target.root) == files_of(whole.root)


def test_a_launch_that_trains_the_same_is_named_and_nothing_is_added(
    sweep: OpenedSweep, archive: Path, tmp_path: Path
) -> None:
    target = Store(tmp_path / "here")
    with target.heartbeat("theirs") as launch:
        launch.start([sweep.trainings[1].key])
        with pytest.raises(LeaseHeldError, match=r"1 of the 3 trainings .* sweep theirs"):
            import_into(target, archive)
        assert files_of(target.root) == {}


def test_a_sweep_without_results_is_one_line(tmp_path: Path) -> None:
    empty = opened_in(tmp_path / "empty")
    with pytest.raises(ArchiveError, match="no training of 'scenes' is finished"):
        export_results(empty, empty.store, tmp_path / "x.tar.gz")


def test_host_process_paths_logs_and_edits_leave_only_when_asked_for(tmp_path: Path) -> None:
    places = [f"model.backbones=[{{name: test_byobnet, weights: {tmp_path}/w.safetensors}}]"]
    sweep = opened_in(tmp_path / "there", *places, f"model.init_from={tmp_path}/vse.safetensors")
    folder = sweep.store.folder(sweep.trainings[0])
    folder.claim("20260101T000000Z-4711-abcd")
    folder.log(f"cannot read {tmp_path}")
    attempt = folder.attempts.newest()
    assert attempt is not None
    secret = replace(attempt, host="node17", pid=4711, git_diff="+secret", git_diff_sha256="ab" * 32)
    folder.attempts.update(replace(secret, reason=f"read {tmp_path}/x: gone", trace=f"File {tmp_path}"))
    train_fully(folder, sweep.trainings[0].stage.epochs)
    shared = tmp_path / "shared.tar.gz"
    export_results(sweep, sweep.store, shared)
    told = b" ".join(files_in(shared).values()).decode(errors="replace")
    for word in ("node17", "4711", "+secret", str(tmp_path)):
        assert word not in told
    assert "ab" * 32 in told
    assert not [name for name in files_in(shared) if name.endswith("log.txt")]
    with opened_archive(shared) as opened:
        assert [one.key for one in opened.finished] == [sweep.trainings[0].key]


def test_a_damaged_record_is_not_exported(sweep: OpenedSweep, tmp_path: Path) -> None:
    """A disk may change a file and not its time: then only its digest tells."""
    path = sweep.store.folder(sweep.trainings[0]).path("metrics.jsonl")
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1.0", b"2.0", 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ArchiveError, match=r"is not the file that result\.json states; launch trains"):
        export_results(sweep, sweep.store, tmp_path / "results.tar.gz")
    assert not (tmp_path / "results.tar.gz").exists()


def test_no_training_starts_from_a_file_beside_an_imported_result(tmp_path: Path) -> None:
    """Not even where the file is the one that the archive states: an import brings no weights."""
    there = opened_in(tmp_path / "there")
    frozen = there.by_stage[0]
    for training in frozen:
        folder = there.store.folder(training)
        folder.claim("L")
        train_fully(folder, training.stage.epochs)
    archive = tmp_path / "results.tar.gz"
    export_results(there, there.store, archive)
    sweep = opened_in(tmp_path / "here")
    added = import_into(sweep.store, archive).added
    for training in added:
        weights = there.store.folder(training).path(BEST)
        shutil.copy2(weights, sweep.store.folder(training).folder / weights.name)
    later = [training for training in sweep.trainings if training.before in added]
    plan = LaunchPlan(sweep, LaunchOptions())
    assert later
    assert {plan.progress[training].state for training in added} == {"done"}
    assert {plan.progress[training].state for training in later} == {"failed"}
    assert "imported results come without weights" in plan.progress[later[0]].reason
    assert plan.startable(later, ahead=True) == []


def test_a_file_that_changes_while_it_is_added_is_named(archive: Path, tmp_path: Path) -> None:
    target = Store(tmp_path / "here")
    with opened_archive(archive) as opened:
        outcome = plan_import(opened, target)
        changed = outcome.added[0]
        path = opened.store.folder(changed).path("metrics.jsonl")
        path.write_bytes(path.read_bytes().replace(b"1.0", b"2.0", 1))
        with pytest.raises(ArchiveError, match=re.escape(f"{changed.name} was not added whole")):
            add_results(opened, outcome, target, "sqlite:///x.db")


def test_a_damaged_attempt_is_not_exported(sweep: OpenedSweep, tmp_path: Path) -> None:
    attempt = sweep.store.folder(sweep.trainings[0]).attempts.path(1)
    attempt.write_text("{")
    export_results(sweep, sweep.store, tmp_path / "results.tar.gz")
    assert len([name for name in files_in(tmp_path / "results.tar.gz") if "/attempts/" in name]) == 2


@pytest.mark.integration
def test_an_import_fills_mlflow_and_leaves_a_sweep_file_to_report_by(
    archive: Path, tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "here"
    root.mkdir()
    shutil.copy(empty_database, root / "mlflow.db")
    assert goal_sweep(["import", str(archive), "--store", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scenes: 3 results added, 0 were there already"
    (target,) = report_targets([lines[-1].rpartition(" ")[2]], [], None)
    assert (target.name, target.uri) == ("scenes", f"sqlite:///{root / 'mlflow.db'}")
    content = Content(target.uri, "scenes")
    assert len(content.children) == 3
    assert {run.data.tags["goal.status"] for run in content.children} == {"done"}
    dump = content.dump()
    assert goal_sweep(["import", str(archive), "--store", str(root)]) == 0
    assert "scenes: 0 results added, 3 were there already" in capsys.readouterr().out
    assert Content(target.uri, "scenes").dump() == dump
