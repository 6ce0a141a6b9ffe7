"""Who pays for a worker that dies: the cell that dies alone without progress, and nobody else."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from goal_sweep.goal_core.training import EpochDone
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.loop import MOST_DEATHS
from tests.helpers.in_process import Dies, sweep_in
from tests.helpers.pretended import ALL_15, ALONE, EPOCHS, ONE_STAGE, Act, Trains
from tests.helpers.store_cases import record


def dies_at(*places: tuple[str, int]) -> Act:
    def act(key: str, epoch: int) -> None:
        if (key, epoch) in places:
            raise Dies

    return act


@pytest.mark.parametrize("setting", ["seeds=[1]", pytest.param(ALL_15, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("epoch", [1, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (3, EPOCHS + 1))])
def test_of_a_unit_the_cell_at_fault_is_found_and_fails_and_the_others_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, epoch: int
) -> None:
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE, setting)
    at_fault = trains.keys[len(trains.keys) // 2]
    outcome = trains.launch(dies_at((at_fault, epoch)))
    assert outcome.status == 1
    assert trains.counts == [3 * (key == at_fault) for key in trains.keys]
    assert trains.states == ["failed" if key == at_fault else "done" for key in trains.keys]
    reasons = {status.reason for status in trains.sweep.statuses().values() if status.state == "failed"}
    assert reasons == {"its worker process died"}
    assert trains.groups.count([at_fault]) == 3  # found by halving, then tried alone
    trains.sweep = sweep_in(tmp_path, ONE_STAGE, setting)
    assert trains.launch().status == 1  # which stays failed


def test_two_cells_at_fault_are_both_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE, ALL_15)
    at_fault = {trains.keys[3]: 2, trains.keys[12]: 3}
    assert trains.launch(dies_at(*at_fault.items())).status == 1
    assert trains.counts == [3 * (key in at_fault) for key in trains.keys]
    assert trains.states == ["failed" if key in at_fault else "done" for key in trains.keys]


@pytest.mark.parametrize("setting", ["seeds=[1]", ALONE], ids=["2 cells", "1 cell"])
def test_deaths_after_progress_cost_nothing_and_the_unit_stays_together(tmp_path: Path, monkeypatch, setting: str):
    trains, seen = Trains(tmp_path, monkeypatch, ONE_STAGE, setting, "resources.max_attempts=1"), set[int]()

    def dies(key: str, epoch: int) -> None:
        if epoch > 1 and epoch not in seen:
            seen.add(epoch)
            raise Dies

    assert trains.launch(dies).status == 0
    assert set(trains.counts) == {0}
    assert trains.groups == [trains.keys] * (EPOCHS + 1)
    for training in trains.sweep.trainings:
        *died, finished = trains.sweep.store.folder(training).attempts.all()
        assert [(one.outcome, one.progressed) for one in died] == [("lost", True)] * EPOCHS
        assert finished.outcome == "done"


def test_cells_that_live_alone_but_not_together_all_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE)

    def dies(key: str, epoch: int) -> None:
        if len(trains.groups[-1]) > 1:
            raise Dies("memory")

    assert trains.launch(dies).status == 0
    assert trains.groups == [trains.keys, *([key] for key in trains.keys)]
    assert trains.counts == [0, 0]


@pytest.mark.parametrize("kind", ["memory", "machine"])
def test_what_a_machine_does_is_never_counted_and_tried_again_for_a_while(tmp_path: Path, monkeypatch, kind: Any):
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE, ALONE)
    outcome = trains.launch(Mock(side_effect=Dies(kind)))
    assert outcome.status == 75
    assert len(trains.groups) == MOST_DEATHS
    assert (trains.counts, trains.states) == ([0], ["waiting"])
    assert f"died {MOST_DEATHS} times in a row" in outcome.progress[trains.sweep.trainings[0]].reason
    assert trains.launch().status == 0


def test_a_worker_that_dies_before_it_begins_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains, starts = Trains(tmp_path, monkeypatch, ONE_STAGE), list[UnitJob]()

    def dies(job: UnitJob, send: Send) -> None:
        starts.append(job)
        raise Dies

    assert trains.launch(train=dies).status == 75
    assert len(starts) == MOST_DEATHS
    assert all(len(job.unit.trainings) == 2 for job in starts)
    assert not any(trains.sweep.store.folder(one).attempts.numbers() for one in trains.sweep.trainings)
    assert trains.launch().status == 0


def test_a_worker_that_dies_among_its_claims_is_nobodys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains, starts = Trains(tmp_path, monkeypatch, ONE_STAGE), list[UnitJob]()

    def dies(job: UnitJob, send: Send) -> None:
        starts.append(job)
        if len(starts) == 1:
            trains.sweep.store.folder(job.unit.trainings[1]).claim(job.launch, 2)
            raise Dies
        run_unit(job, send)

    assert trains.launch(train=dies).status == 0
    assert trains.counts == [0, 0]
    assert [len(job.unit.trainings) for job in starts] == [2, 1, 1]


def test_a_hang_fails_the_cell_that_hangs_alone_with_its_own_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE)
    at_fault = trains.keys[1]

    def hangs(key: str, epoch: int) -> None:
        """What a worker leaves that ends itself."""
        if (key, epoch) == (at_fault, 2):
            for training in trains.sweep.trainings:
                if training.key in trains.groups[-1]:
                    folder = trains.sweep.store.folder(training)
                    folder.attempt = folder.attempts.newest()
                    folder.end("lost", "hung: no step for 9 s")
            raise Dies

    assert trains.launch(hangs).status == 1
    assert trains.counts == [0, 3]
    failed = trains.sweep.statuses()[trains.sweep.trainings[1]]
    assert (failed.state, failed.reason) == ("failed", "hung: no step for 9 s")
    assert trains.states[0] == "done"


def test_what_arrives_of_a_worker_after_its_end_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains, senders = Trains(tmp_path, monkeypatch, ONE_STAGE), list[Send]()

    def dies_once(job: UnitJob, send: Send) -> None:
        for late in senders:
            late([EpochDone(key=trains.keys[0], record=record(3))], claimed=trains.keys)
        senders.append(send)
        if len(senders) == 1:
            raise Dies
        run_unit(job, send)

    assert trains.launch(train=dies_once).status == 0
    assert trains.counts == [0, 0]


def test_a_training_that_ended_before_its_worker_died_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its worker had no time to say so."""
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE)

    def dies(key: str, epoch: int) -> None:
        if (key, epoch) == (trains.keys[1], EPOCHS + 1) and len(trains.groups) == 1:
            raise Dies

    assert trains.launch(dies).status == 0
    assert trains.groups == [trains.keys, trains.keys[1:]]
    assert trains.counts == [0, 0]
