"""What a launch trains, in which order, what it tries again, and what it leaves; also beside another launch."""

import io
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from goal_sweep.goal_core.basics.errors import DivergedError, UnfinishedError
from goal_sweep.runners.execution.job import UnfitMachineError, UnitJob
from goal_sweep.runners.execution.session import Machine
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.remaining import LaunchOptions
from goal_sweep.sweeps import Training
from tests.helpers.forked import exit_status, forked
from tests.helpers.in_process import OneMachine, counted, launch, results, sweep_in
from tests.helpers.pretended import ALONE, EPOCHS, ONE_STAGE, Act, Trains
from tests.helpers.store_cases import claimed, train

FOUR = "objectives={only: [con/con, sig/cir, lin/nca, sig-ms/cir]}"


def breaks(*trainings: Training, error: Exception | None = None) -> Act:
    """The second epoch of some trainings fails."""

    def act(key: str, epoch: int) -> None:
        if epoch == 2 and key in {training.key for training in trainings}:
            raise error or RuntimeError("it broke")

    return act


def states(trains: Trains) -> list[list[str]]:
    statuses = trains.sweep.statuses()
    return [[statuses[training].state for training in stage] for stage in trains.sweep.by_stage]


def test_a_stage_follows_for_what_is_done_and_for_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Trains(tmp_path, monkeypatch, FOUR)
    frozen, finetune = trains.sweep.by_stage
    outcome = trains.launch(breaks(frozen[0], error=DivergedError("NaN in the gradient")))
    assert outcome.status == 1
    assert trains.groups == [[one.key for one in frozen], [one.key for one in finetune[1:]]]
    assert states(trains) == [["failed", "done", "done", "done"], ["waiting", "done", "done", "done"]]
    assert outcome.progress[finetune[0]].reason == "its frozen stage failed"
    assert counted(trains.sweep) == ["NaN in the gradient"]  # it would happen again


def test_trainings_of_another_machine_are_added_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/report.md does so by rsync."""
    one, two = (sweep_in(tmp_path / f"{seed}", ONE_STAGE, f"seeds=[{seed}]") for seed in (1, 2))
    assert [launch(sweep, monkeypatch).status for sweep in (one, two)] == [0, 0]
    shutil.copytree(tmp_path / "2/store/cells", tmp_path / "1/store/cells", dirs_exist_ok=True)
    both = sweep_in(tmp_path / "1", ONE_STAGE, "seeds=[1,2]")
    outcome = launch(both, monkeypatch)
    assert (outcome.status, outcome.found_nothing_to_do) == (0, True)
    assert results(both) == {**results(one), **results(two)}


def test_what_fails_is_tried_again_until_its_attempts_are_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE)
    at_fault = trains.sweep.trainings[0]
    assert trains.launch(breaks(at_fault)).status == 1
    # Each time it had saved no state since the failure before.
    assert trains.groups == [trains.keys, [at_fault.key], [at_fault.key]]
    assert states(trains) == [["failed", "done"]]
    assert trains.launch().found_nothing_to_do
    assert trains.launch(options=LaunchOptions(failed="retry")).status == 0


@pytest.mark.parametrize("failed", ["keep", "retry", "only"])
def test_failed_trainings_stay_failed_are_tried_too_or_are_all_that_is_tried(tmp_path: Path, monkeypatch, failed: str):
    trains = Trains(tmp_path, monkeypatch, "resources.max_attempts=1")
    (one, other), (after, after_other) = trains.sweep.by_stage
    folder = claimed(trains.sweep.store.folder(one))
    folder.end("failed", "it broke", counted=True)
    folder.claim("M")
    folder.end("interrupted", "a retry that was interrupted")
    assert trains.sweep.statuses()[one].state == "failed"
    outcome = trains.launch(options=LaunchOptions(failed=failed))  # type: ignore[arg-type]
    trained = {key for group in trains.groups for key in group}
    asked = {"keep": [other, after_other], "retry": [one, other, after, after_other], "only": [one, after]}[failed]
    assert trained == {training.key for training in asked}
    assert outcome.status == {"keep": 1, "retry": 0, "only": 0}[failed]


def test_the_first_failure_ends_a_launch_that_should_fail_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Trains(tmp_path, monkeypatch, FOUR, "execution.cells_per_unit=1", "resources.max_attempts=1")
    first = trains.sweep.trainings[0]
    assert trains.launch(breaks(first), options=LaunchOptions(fail_fast=True)).status == 1
    assert trains.groups == [[first.key]]
    assert trains.launch().status == 1
    assert sum(map(len, trains.groups)) == 1 + 3 + 3


def test_units_that_compute_features_come_first_and_both_stages_go_on_together(tmp_path: Path, monkeypatch):
    trains = Trains(tmp_path, monkeypatch, "seeds=[1,2]", "execution.cells_per_unit=1")
    frozen, _ = trains.sweep.by_stage
    seeds = {training.key: training.cell.seed for training in frozen}
    assert trains.launch().status == 0
    # Random backbones have features of their own for each seed.
    assert [seeds[key] for (key,) in trains.groups[:2]] == [1, 2]
    assert {key for (key,) in trains.groups[:4]} == seeds.keys()
    assert len(trains.groups) == 8


def test_a_machine_that_lacks_something_is_avoided_and_when_all_do_the_launch_ends(tmp_path: Path, monkeypatch):
    machines = [Machine(id=name, resources={"CPU": 1.0}) for name in ("blind", "good")]
    monkeypatch.setattr(OneMachine, "machines", lambda self: machines)
    trains, lacking, said = Trains(tmp_path, monkeypatch, ONE_STAGE), ["blind"], io.StringIO()

    def elsewhere(job: UnitJob, send: Send) -> None:
        assert job.elsewhere
        if lacking:
            raise UnfitMachineError(f"{lacking.pop()}: no such folder /data")
        run_unit(job, send)

    options = LaunchOptions(address="head:6379")
    outcome = trains.launch(train=elsewhere, options=options, console=Console(file=said, width=200))
    assert outcome.status == 0
    assert "blind: no such folder /data" in said.getvalue()
    assert len(trains.groups) == 1
    trains, lacking = Trains(tmp_path / "again", monkeypatch, ONE_STAGE), ["good", "blind"]
    with pytest.raises(UnfinishedError, match=r"no machine of the cluster can train this sweep.* no such folder /data"):
        trains.launch(train=elsewhere, options=options)
    assert counted(trains.sweep) == []


def test_two_launches_at_once_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = sweep_in(tmp_path / "unbroken", "execution.cells_per_unit=1", "seeds=[1,2]")
    assert launch(unbroken, monkeypatch).status == 0

    def act() -> None:
        sweep = sweep_in(tmp_path / "run", "execution.cells_per_unit=1", "seeds=[1,2]")
        os._exit(launch(sweep, monkeypatch).status)

    assert [exit_status(one) for one in [forked(act), forked(act)]] == [0, 0]
    sweep = sweep_in(tmp_path / "run", "execution.cells_per_unit=1", "seeds=[1,2]")
    assert results(sweep) == results(unbroken)
    attempts = [sweep.store.folder(training).attempts.all() for training in sweep.trainings]
    assert [[one.outcome for one in each] for each in attempts] == [["done"]] * 8


@pytest.mark.parametrize("finishes", [True, False])
def test_what_another_launch_trains_is_waited_for_and_what_it_leaves_is_trained(tmp_path, monkeypatch, finishes: bool):
    trains, said = Trains(tmp_path, monkeypatch, ONE_STAGE, ALONE), io.StringIO()
    trains.sweep.store.prepare()
    theirs = claimed(trains.sweep.store.folder(trains.sweep.trainings[0]), "another launch")

    def end() -> None:
        time.sleep(0.5)
        if finishes:
            train(theirs, EPOCHS)
        else:
            theirs.end("interrupted", "stopped")

    thread = threading.Thread(target=end)
    thread.start()
    outcome = trains.launch(console=Console(file=said, width=200))
    thread.join()
    assert outcome.status == 0
    assert f"1 trainings are being done by {theirs.attempts.all()[0].describe()}" in said.getvalue()
    assert len(theirs.attempts.numbers()) == 1 + (not finishes)


def test_a_search_whose_candidates_another_launch_has_trained_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tune = "tune={space: {objectives.params.tau: {loguniform: [1, 20]}}, budget: 2}"
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE, "objectives={only: [sig/cir]}", tune)
    trains.sweep.store.prepare()
    candidates = [trains.sweep.store.folder(one) for one in trains.sweep.trainings if one.number is not None]
    for folder in candidates:
        folder.claim("another launch")

    def end() -> None:
        time.sleep(0.5)
        for folder in candidates:
            train(folder, EPOCHS)

    thread = threading.Thread(target=end)
    thread.start()
    assert trains.launch().status == 0
    thread.join()
    trains.sweep = trains.sweep.searched()
    assert set(trains.states) == {"done"}
    assert len(trains.groups) == 1
    assert len(trains.states) > len(candidates)
