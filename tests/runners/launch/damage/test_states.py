"""Damaged files of unfinished trainings: a launch continues from none, and ends with the same numbers."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers import in_process
from tests.helpers.damage import cut, data_check, flip, stopped_after, swap
from tests.helpers.in_process import launch, results, sweep_in


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
