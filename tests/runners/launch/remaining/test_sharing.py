"""Launches that share a sweep: each training is done once, whoever does it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import launch_sweep
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining import sharing
from goal_sweep.runners.launch.remaining.plan import LaunchOptions
from goal_sweep.runners.launch.remaining.sharing import Others
from goal_sweep.runners.store import LeaseHeldError
from tests.helpers.in_process import InProcess, launch, results, sweep_in


def options(number: int, total: int = 2) -> LaunchOptions:
    return LaunchOptions(share=(number, total))


@pytest.mark.parametrize(
    ("share", "order"),
    [((1, 2), "abcde"), ((2, 2), "cdeab"), ((3, 4), "cdeab"), ((4, 4), "deabc"), ((9, 9), "eabcd")],
)
def test_each_launch_begins_with_a_part_of_its_own(share: tuple[int, int], order: str) -> None:
    nothing: Any = None
    units: Any = list("abcde")
    assert "".join(map(str, Others(nothing, "L", nothing, share).from_own_part(units))) == order


def attempts(sweep: OpenedSweep) -> list[int]:
    return [len(sweep.store.folder(one).attempts.numbers()) for one in sweep.trainings]


@pytest.mark.slow
def test_a_launch_leaves_what_another_holds_and_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path)
    held = sweep.by_stage[0][0]
    with sweep.store.heartbeat("tiny", shares=True) as other:
        other.start(one.key for one in sweep.trainings)
        sweep.store.folder(held).claim(other.id)
        outcome = launch(sweep, monkeypatch, options(2))
        assert (outcome.status, outcome.progress.counts()["done"]) == (0, 2)
        assert outcome.progress[held].state == "running"
        assert attempts(sweep)[0] == 1
    # The other has ended without finishing, so the next takes what it left.
    assert launch(sweep, monkeypatch, options(1)).progress.counts()["done"] == 4
    assert results(sweep) == results_alone(tmp_path, monkeypatch)


def results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    alone = sweep_in(tmp_path / "alone")
    assert launch(alone, monkeypatch).status == 0
    return results(alone)


def test_a_unit_whose_first_training_is_held_is_left_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path)
    first, second = sweep.by_stage[0]
    with sweep.store.heartbeat("tiny", shares=True) as other:
        other.start(one.key for one in sweep.trainings)
        claimed: list[str] = []

        class Rival(InProcess):
            """Another launch claims the first training when this one has chosen its units already."""

            def run(self, jobs: Any, observer: Any) -> None:
                if not claimed:
                    sweep.store.folder(first).claim(other.id)
                    claimed.append(first.key)
                    super().run(jobs, observer)
                    assert attempts(sweep)[:2] == [1, 0]
                else:
                    super().run(jobs, observer)

        monkeypatch.setattr(launcher, "RayUnits", Rival)
        outcome = launch_sweep(sweep, options(2), Console(quiet=True), lambda *words: " ".join(words))
        # Then it takes the second alone, because nobody holds it.
        assert outcome.status == 0
        assert outcome.progress[second].state == "done"
        assert outcome.progress[first].state == "running"
        assert (sweep.store.root / "sweeps").is_dir()
        assert not (sweep.store.root / "mlflow.db").exists()


def test_a_launch_alone_and_one_that_shares_refuse_each_other(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    keys = [one.key for one in sweep.trainings]
    with sweep.store.heartbeat("tiny", shares=True) as sharing_one:
        sharing_one.start(keys)
        with sweep.store.heartbeat("tiny") as alone, pytest.raises(LeaseHeldError):
            alone.start(keys)
        with sweep.store.heartbeat("tiny", shares=True) as second:
            second.start(keys)
    with sweep.store.heartbeat("tiny") as alone:
        alone.start(keys)
        with sweep.store.heartbeat("tiny", shares=True) as late, pytest.raises(LeaseHeldError):
            late.start(keys)


def test_a_training_that_nobody_holds_and_no_worker_tries_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_in(tmp_path)
    monkeypatch.setattr(InProcess, "run", lambda self, jobs, observer: None)
    outcome = launch(sweep, monkeypatch, options(1))
    assert outcome.status == 1
    assert outcome.progress.counts()["failed"] == 4  # the second stage has nothing to start from


def test_a_launch_waits_for_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals, clock = [2], [0.0]
    notes: list[str] = []

    def start(keys: Any) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise LeaseHeldError("held by me@n1")

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    heartbeat: Any = SimpleNamespace(start=start)
    sharing.start_waiting(heartbeat, ["k"], 10.0, notes.append)
    assert notes == ["waiting for another launch: held by me@n1"]
    refusals[0] = 99
    with pytest.raises(LeaseHeldError):
        sharing.start_waiting(heartbeat, ["k"], 10.0, notes.append)
    assert clock[0] < 20
