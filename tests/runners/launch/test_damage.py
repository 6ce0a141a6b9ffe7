"""Damaged files: they are named, and a launch trains again what is damaged and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_core.checkpoints import BEST
from runners.cli.app import run
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.plan import LaunchOptions, LaunchPlan
from tests.helpers.in_process import as_version_1, launch, results, sweep_in


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


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(bytes(content))


def trained_again(sweep: OpenedSweep) -> list[str]:
    """The trainings whose earlier files were set aside."""
    return sorted(path.name.partition("-")[0] for path in sweep.store.root.glob("cells/*/*.damaged-1"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("spoil", [flip, cut], ids=["flipped", "cut"])
@pytest.mark.parametrize("name", [BEST, "metrics.jsonl", "triplets.npz", "result.json"])
@pytest.mark.parametrize("stage", [0, 1])
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
    assert "damaged (1)" in capsys.readouterr().out
    assert run(["data", "check", *arguments, "--store", "--quick"]) == 2
    assert training.name in capsys.readouterr().out
    assert launch(sweep, monkeypatch).status == 0
    assert trained_again(sweep) == [training.stage.name]
    assert results(sweep) == finished[1]


def test_a_launch_that_retries_only_what_failed_leaves_a_damaged_result_where_it_is(sweep: OpenedSweep) -> None:
    path = sweep.store.folder(sweep.trainings[0]).path(BEST)
    flip(path)
    LaunchPlan(sweep, LaunchOptions(failed="only")).set_aside_finished()
    assert path.exists()
    assert trained_again(sweep) == []


def test_damage_that_left_size_and_time_alone_is_found_by_a_full_check_and_before_the_weights_are_used(
    sweep: OpenedSweep,
    finished: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    frozen, finetune = (trainings[0] for trainings in sweep.by_stage)
    path = sweep.store.folder(frozen).path(BEST)
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not any(status.damaged for status in sweep.statuses().values())
    arguments = [str(sweep.store.root.parent / "tiny.yaml"), "--set", f"store={sweep.store.root}"]
    assert run(["data", "check", *arguments, "--store", "--quick"]) == 2
    assert "does not match its checksum" in capsys.readouterr().out
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
        patch.setattr("runners.execution.worker.UnitListener.step", step)
        with pytest.raises(Killed):
            launch(sweep, patch)


@pytest.mark.parametrize("name", ["last.safetensors", "best-2.safetensors"])
@pytest.mark.parametrize("spoil", [flip, cut, Path.unlink], ids=["flipped", "cut", "removed"])
def test_a_damaged_state_is_never_continued(
    finished: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    spoil: Callable[[Path], None],
) -> None:
    sweep = sweep_in(tmp_path)
    stopped_after(sweep, monkeypatch, 17)  # in the third epoch of 8 steps
    folder = sweep.store.folder(sweep.by_stage[0][0])
    spoil(folder.path(name))
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]
    assert not any(attempt.charged for attempt in folder.attempts.all())


@pytest.mark.parametrize("steps", [3, 9, 17, 26])
def test_a_store_of_the_first_version_is_continued(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    sweep = sweep_in(tmp_path)
    stopped_after(sweep, monkeypatch, steps)
    as_version_1(sweep)
    assert launch(sweep, monkeypatch).status == 0
    assert results(sweep) == finished[1]


def test_a_finished_store_of_the_first_version_is_done(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    as_version_1(sweep)
    outcome = launch(sweep, monkeypatch)
    assert outcome.found_nothing_to_do
    flip(sweep.store.folder(sweep.trainings[0]).path(BEST))
    assert [status.damaged for status in sweep.statuses().values()].count(True) == 1
