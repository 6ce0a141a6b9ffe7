"""Damaged files: they are named, and a launch trains again what is damaged and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from tests.helpers import in_process
from tests.helpers.in_process import launch, results, sweep_in


class Killed(BaseException):
    """An error that no handler catches, to stand for a killed process."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a finished sweep, and its numbers."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert launch(sweep_in(folder), patch).status == 0
    return folder, results(sweep_in(folder))


@pytest.fixture
def sweep(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> OpenedSweep:
    """A copy of the finished sweep."""
    shutil.copytree(finished[0] / "store", tmp_path / "store")
    return sweep_in(tmp_path)


@pytest.fixture(scope="module")
def stopped_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was killed in the third epoch of 8 steps."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        stopped_after(sweep_in(folder), patch, 17)
    return folder


@pytest.fixture
def stopped(stopped_folder: Path, tmp_path: Path) -> OpenedSweep:
    """A copy of the killed sweep."""
    shutil.copytree(stopped_folder / "store", tmp_path / "store")
    return sweep_in(tmp_path)


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(bytes(content))


def trained_again(sweep: OpenedSweep) -> list[str]:
    """The trainings whose earlier files were set aside."""
    return sorted(path.name.partition("-")[0] for path in sweep.store.root.glob("cells/*/*.damaged-1"))


def unexpected(training: object, error: Exception) -> None:
    raise error


def quietly(act: Callable[[Path], None]) -> Callable[[Path], None]:
    """Change a file and leave its time alone, as bit rot does."""

    def changed(path: Path) -> None:
        before = path.stat()
        act(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


def data_check(sweep: OpenedSweep, *options: str) -> int:
    arguments = [str(sweep.store.root.parent / "tiny.yaml"), "--set", f"store={sweep.store.root}"]
    return run(["data", "check", *arguments, "--store", "--quick", *options])


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file and folder with the time of its last change, and the files' bytes."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


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


def test_a_full_check_reads_unfinished_states_and_features_and_says_what_it_cannot_read(
    stopped: OpenedSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = stopped
    paths = [path for path in sweep.store.root.rglob("*.safetensors") if path.stem.startswith(("last", "best", "t"))]
    for path in paths:
        flip(path)
    assert data_check(sweep) == 2
    said = capsys.readouterr().out
    assert all(str(path) in said for path in paths)
    assert len(paths) >= 5
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "RETRY_DELAYS", ())
        patch.setattr(atomic, "before_operation", refuses(sweep.store.folder(sweep.trainings[0]).folder))
        assert data_check(sweep) == 2
    assert f"{sweep.trainings[0].name}: cannot read " in capsys.readouterr().out


def refuses(folder: Path) -> Callable[[str, Path], None]:
    """A disk that refuses every file of a folder."""

    def hook(operation: str, path: Path) -> None:
        if folder in [path, *path.parents]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    return hook


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


def swap(one: Path, other: Path) -> None:
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


@pytest.mark.parametrize("name", ["last.safetensors", "best-2.safetensors"])
def test_the_states_of_two_trainings_cannot_be_swapped(
    finished: tuple[Path, dict[str, Any]], stopped: OpenedSweep, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sweep = stopped
    folders = [sweep.store.folder(training) for training in sweep.by_stage[0]]
    swap(*(folder.path(name) for folder in folders))
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]
    logs = "".join(folder.log_text() for folder in folders)
    assert logs.count("belongs to another training") == 2


def test_the_folders_of_two_trainings_cannot_be_swapped(
    sweep: OpenedSweep, finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(*(sweep.store.folder(training).folder for training in sweep.by_stage[1]))
    reasons = [status.reason for status in sweep.statuses().values() if status.damaged]
    assert len(reasons) == 2
    assert all("the result of another training" in reason for reason in reasons)
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]


def test_a_worker_starts_from_no_weights_of_another_training(
    sweep: OpenedSweep, finished: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for training in sweep.by_stage[1]:
        sweep.store.set_aside(training)
    best, other = (sweep.store.folder(training).path(BEST) for training in sweep.by_stage[0])
    left = [1]

    def swapped_just_before(*given: Any) -> None:
        """Run a unit, the first one with weights that changed after the driver had compared them."""
        if left:
            shutil.copy(other, best)
            left.pop()
        run_unit(*given)

    monkeypatch.setattr(in_process, "run_unit", swapped_just_before)
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]
    attempts = sweep.store.folder(sweep.by_stage[1][0]).attempts.all()
    assert "belongs to another training" in attempts[0].reason
    assert not any(attempt.charged for attempt in attempts)


def test_features_of_another_split_are_computed_again(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_in(tmp_path)
    stopped_after(sweep, monkeypatch, 3)
    theirs = next((finished[0] / "store" / "features").glob("test*"))
    shutil.copy(theirs, next((sweep.store.root / "features").glob("val*")))
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


def stopped_after(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Kill a launch after a number of steps."""
    left = [steps]

    def step(self: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("goal_sweep.runners.execution.unit_listener.UnitListener.step", step)
        with pytest.raises(Killed):
            launch(sweep, patch)


@pytest.mark.parametrize("name", ["last.safetensors", "best-2.safetensors"])
@pytest.mark.parametrize(
    "spoil",
    [flip, pytest.param(cut, marks=pytest.mark.exhaustive), Path.unlink],
    ids=["flipped", "cut", "removed"],
)
def test_a_damaged_state_is_never_continued(
    finished: tuple[Path, dict[str, Any]],
    stopped: OpenedSweep,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    spoil: Callable[[Path], None],
) -> None:
    sweep = stopped
    folder = sweep.store.folder(sweep.by_stage[0][0])
    spoil(folder.path(name))
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]
    assert not any(attempt.charged for attempt in folder.attempts.all())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[("result.json", "pipe"), ("1.json", "folder"), ("cell.json", "folder"), ("log.txt", "pipe")],
        *[
            pytest.param(name, kind, marks=pytest.mark.exhaustive)
            for name in ("result.json", "1.json", "cell.json", "log.txt", "metrics", "last", "best", "table")
            for kind in ("folder", "pipe")
        ],
    ],
)
def test_what_lies_in_a_files_place_and_is_none_is_set_aside(
    finished: tuple[Path, dict[str, Any]],
    stopped: OpenedSweep,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
) -> None:
    sweep, training = stopped, stopped.by_stage[0][0]
    folder = sweep.store.folder(training)
    places = {"1.json": folder.attempts.path(1), "cell.json": folder.folder.parent / name, "log.txt": folder.path(name)}
    saved = {"metrics": "metrics.jsonl", "last": "last.safetensors", "best": "best-2.safetensors"}
    path = places.get(name, folder.place(saved.get(name, "result.json")))
    path = sweep.store._results("tiny") if name == "table" else path
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    status = sweep.statuses()[training]
    assert (status.state, status.unreadable) == ("waiting", False)
    assert ("is damaged: it is not a file" in status.reason) == (name in ("result.json", "1.json"))
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]
    assert not any(attempt.charged for attempt in folder.attempts.all())


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
