"""Damaged results: they are named, and a launch trains again what is damaged and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers import in_process
from tests.helpers.damage import cut, data_check, flip, quietly, swap, trained_again
from tests.helpers.in_process import launch, results


def unexpected(training: object, error: Exception) -> None:
    raise error


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file and folder with the time of its last change, and the files' bytes."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


QUICK = {
    (0, BEST, flip), (1, BEST, flip), (1, "metrics.jsonl", flip), (1, "ranks.npz", flip), (1, "result.json", flip),
    (1, "result.json", cut),
}  # fmt: skip
"""Each file once, and each way and each stage."""


@pytest.mark.parametrize(
    ("stage", "name", "spoil"),
    [
        pytest.param(stage, name, spoil, marks=[pytest.mark.exhaustive] * ((stage, name, spoil) not in QUICK))
        for stage in (0, 1)
        for name in (BEST, "metrics.jsonl", "ranks.npz", "result.json")
        for spoil in (flip, cut)
    ],
)
def test_a_damaged_result_is_named_and_trained_again(
    sweep: OpenedSweep,
    finished: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    name: str,
    stage: int,
) -> None:
    training = sweep.by_stage[stage][0]
    path = sweep.store.folder(training).path(name)
    spoil(path)
    statuses = sweep.statuses()
    assert [one for one, status in statuses.items() if status.state != "done"] == [training]
    assert statuses[training].damaged
    assert str(path) in statuses[training].reason
    arguments = [str(sweep.store.root.parent / "tiny.yaml"), "--set", f"store={sweep.store.root}"]
    assert run(["status", *arguments]) == 0
    assert "damaged" in capsys.readouterr().out
    assert run(["data", "check", *arguments, "--store", "--quick"]) == 2
    assert training.name in capsys.readouterr().out
    assert launch(sweep, monkeypatch).status == 0
    assert trained_again(sweep) == [training.stage.name]
    assert results(sweep) == finished[1]


def test_a_launch_that_retries_only_what_failed_leaves_a_damaged_result_where_it_is(sweep: OpenedSweep) -> None:
    path = sweep.store.folder(sweep.trainings[0]).path(BEST)
    flip(path)
    assert LaunchPlan(sweep, LaunchOptions(failed="only")).set_aside_found(unexpected) == 0
    assert path.exists()
    assert trained_again(sweep) == []
    assert LaunchPlan(sweep, LaunchOptions()).set_aside_found(unexpected) == 1
    assert trained_again(sweep) == [sweep.trainings[0].stage.name]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        pytest.param(BEST, quietly(flip), id="flipped weights"),
        pytest.param("ranks.npz", quietly(flip), id="flipped ranks"),
        pytest.param("metrics.jsonl", Path.unlink, id="removed metrics"),
        pytest.param("ranks.npz", Path.unlink, id="removed ranks"),
    ],
)
def test_what_a_full_check_finds_the_next_launch_trains_again(
    sweep: OpenedSweep,
    finished: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    name: str,
) -> None:
    path = sweep.store.folder(sweep.by_stage[1][0]).path(name)
    spoil(path)
    assert not any(status.damaged for status in sweep.statuses().values())
    before = sweep.store.root.parent.stat().st_mtime_ns, content(sweep.store.root)
    assert data_check(sweep) == 2
    said = capsys.readouterr().out
    assert str(path) in said
    assert "results: 1 damaged" in said
    assert before == (sweep.store.root.parent.stat().st_mtime_ns, content(sweep.store.root))
    assert launch(sweep, monkeypatch).found_nothing_to_do
    assert data_check(sweep, "--set-aside") == 2
    assert launch(sweep, monkeypatch).status == 0
    assert trained_again(sweep) == ["finetune"]
    assert results(sweep) == finished[1]
    assert data_check(sweep) == 0


def test_lost_weights_of_the_stage_before_are_trained_again(
    sweep: OpenedSweep, finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, finetune = (trainings[0] for trainings in sweep.by_stage)
    sweep.store.folder(frozen).path(BEST).unlink()
    assert launch(sweep, monkeypatch).found_nothing_to_do
    sweep.store.set_aside(finetune)
    assert launch(sweep, monkeypatch).status == 0
    assert trained_again(sweep) == ["frozen"]
    assert results(sweep) == finished[1]


def test_a_folder_that_cannot_be_moved_fails_its_training_alone(
    sweep: OpenedSweep, finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, neighbour = sweep.by_stage[1]
    flip(sweep.store.folder(training).path(BEST))
    sweep.store.set_aside(neighbour)

    def hook(operation: str, path: Path) -> None:
        if operation == "rename" and path == sweep.store.folder(training).folder:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "RETRY_DELAYS", ())
        patch.setattr(atomic, "before_operation", hook)
        outcome = launch(sweep, patch)
    assert outcome.status == 1
    assert outcome.progress[training].reason.startswith("storage: ")
    assert str(sweep.store.folder(training).folder) in outcome.progress[training].reason
    assert outcome.progress[neighbour].state == "done"
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]


def test_the_folders_of_two_trainings_cannot_be_swapped(
    sweep: OpenedSweep, finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(*(sweep.store.folder(training).folder for training in sweep.by_stage[1]))
    reasons = [status.reason for status in sweep.statuses().values() if status.damaged]
    assert len(reasons) == 2
    assert all("the result of another training" in reason for reason in reasons)
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]


def test_damage_that_left_size_and_time_alone_is_found_before_the_weights_are_used(
    sweep: OpenedSweep,
    finished: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen, finetune = (trainings[0] for trainings in sweep.by_stage)
    quietly(flip)(sweep.store.folder(frozen).path(BEST))
    assert not any(status.damaged for status in sweep.statuses().values())
    sweep.store.set_aside(finetune)
    assert launch(sweep, monkeypatch).status == 0
    assert trained_again(sweep) == ["frozen"]
    assert results(sweep) == finished[1]


def test_what_the_launch_before_has_repaired_is_not_trained_again(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sweep.store.folder(sweep.trainings[0]).folder / "result.json"
    good = path.read_bytes()
    path.write_bytes(b"{}")
    with sweep.store.heartbeat("before") as before:
        before.start([sweep.trainings[0].key])

        def repair(seconds: float) -> None:
            path.write_bytes(good)
            before.close()

        monkeypatch.setattr("goal_sweep.runners.store.leases.heartbeat.time.sleep", repair)
        assert launch(sweep, monkeypatch, LaunchOptions(wait_s=60)).status == 0
    assert path.read_bytes() == good
    assert not list(sweep.store.root.rglob("*.damaged*"))


def test_a_store_that_is_gone_is_no_trainings_fault(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    root = sweep.store.root

    class Moving(in_process.InProcess):
        def run(self, jobs: Any, observer: Any) -> None:
            root.rename(root.with_name("elsewhere"))
            observer.started(jobs[0])
            observer.finished(jobs[0])

    shutil.rmtree(sweep.store.folder(sweep.trainings[0]).folder)
    monkeypatch.setattr(in_process, "InProcess", Moving)
    with pytest.raises(UnfinishedError, match="is gone"):
        launch(sweep, monkeypatch)
    assert not root.exists()


def test_force_repeats_what_another_launch_finishes_while_this_one_begins(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sweep.trainings[0]
    path = sweep.store.folder(first).folder / "result.json"
    good = path.read_bytes()
    attempt = sweep.store.folder(first).attempts
    path.unlink()
    other = sweep.store.heartbeat("other")
    other.start([first.key])
    newest = attempt.newest()
    assert newest is not None
    attempt.update(replace(newest, outcome="running", launch_id=other.id))

    def prepare(self: OpenedSweep) -> None:
        if not path.exists():  # the other launch ends
            attempt.update(newest)
            path.write_bytes(good)
            other.close()

    monkeypatch.setattr(OpenedSweep, "prepare", prepare)
    assert launch(sweep, monkeypatch, LaunchOptions(force=True)).status == 0
    folders = [sweep.store.folder(one).folder for one in sweep.trainings]
    assert all(folder.with_name(f"{folder.name}.replaced-1").exists() for folder in folders)
