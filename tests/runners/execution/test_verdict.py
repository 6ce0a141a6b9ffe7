"""Who pays for a worker that dies: the cell that dies alone without progress, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from goal_sweep.runners.execution.verdict import DIED

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import TrainingFolder, charged_failures
from tests.helpers.dying_workers import EPOCHS, Died, run_until_it_ends
from tests.helpers.sweep_cases import opened_in

ALL_15 = ("objectives={pair: [con, lin, sig, lin-ms, sig-ms], triplet: [con, nca, cir]}", "execution.cells_per_unit=0")
ALONE = "objectives={only: [con/con]}"


def charges(sweep: OpenedSweep) -> list[int]:
    return [charged_failures(sweep.store.folder(training).attempts.all()) for training in sweep.by_stage[0]]


def states(sweep: OpenedSweep) -> list[str]:
    statuses = sweep.statuses()
    return [statuses[training].state for training in sweep.by_stage[0]]


@pytest.mark.parametrize("settings", [(), ALL_15], ids=["2 cells", "15 cells"])
@pytest.mark.parametrize("epoch", [1, 3, EPOCHS + 1], ids=["first epoch", "third epoch", "test"])
def test_only_the_cell_that_kills_its_process_is_charged_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], epoch: int
) -> None:
    sweep = opened_in(tmp_path / "store", *settings)
    trainings = sweep.by_stage[0]
    poisoned = trainings[len(trainings) // 2].key

    def dies(key: str, at: int) -> None:
        if (key, at) == (poisoned, epoch):
            raise Died

    groups, failures = run_until_it_ends(sweep, monkeypatch, dies)
    assert charges(sweep) == [3 * (training.key == poisoned) for training in trainings]
    assert states(sweep) == ["failed" if training.key == poisoned else "done" for training in trainings]
    assert [(event.key, event.reason) for event in failures] == [(poisoned, DIED)] * 3
    # It is found by halving, is then tried alone, and its retries come after its neighbours have finished.
    alone = [index for index, group in enumerate(groups) if group == [poisoned]]
    assert len(alone) == 3
    healthy = {training.key for training in trainings} - {poisoned}
    assert all(set(group) <= healthy for group in groups[alone[0] + 1 : alone[1]])
    assert groups[alone[1] + 1 :] == [[poisoned]]


def test_two_cells_that_kill_their_process_are_both_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = opened_in(tmp_path / "store", *ALL_15)
    trainings = sweep.by_stage[0]
    poisoned = {trainings[3].key: 2, trainings[12].key: 3}

    def dies(key: str, at: int) -> None:
        if poisoned.get(key) == at:
            raise Died

    run_until_it_ends(sweep, monkeypatch, dies, most=40)
    assert charges(sweep) == [3 * (training.key in poisoned) for training in trainings]
    assert states(sweep) == ["failed" if training.key in poisoned else "done" for training in trainings]


@pytest.mark.parametrize("settings", [(), (ALONE,)], ids=["2 cells", "1 cell"])
def test_deaths_after_progress_cost_nothing_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    sweep = opened_in(tmp_path / "store", *settings, "resources.max_attempts=1")
    seen: set[int] = set()

    def dies(key: str, at: int) -> None:
        if at > 1 and at not in seen:
            seen.add(at)
            raise Died

    groups, failures = run_until_it_ends(sweep, monkeypatch, dies)
    assert set(states(sweep)) == {"done"}
    assert set(charges(sweep)) == {0}
    assert failures == []
    assert len(groups) == EPOCHS + 1  # and the unit always went on together
    for training in sweep.by_stage[0]:
        *died, finished = sweep.store.folder(training).attempts.all()
        assert all(attempt.died and attempt.progressed for attempt in died)
        assert finished.outcome == "done"


def test_progress_forgives_the_deaths_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = opened_in(tmp_path / "store", ALONE, "resources.max_attempts=2")
    starts: dict[int, int] = {}

    def dies(key: str, at: int) -> None:
        starts[at] = starts.get(at, 0) + 1
        if at > 1 and starts[at] <= 2:  # once after progress, and once at the start of the next attempt
            raise Died

    _, failures = run_until_it_ends(sweep, monkeypatch, dies)
    assert states(sweep) == ["done"]
    assert len(failures) == EPOCHS
    assert charges(sweep) == [1]


@pytest.mark.parametrize(("lost", "charged"), [(True, 0), (False, 3)])
def test_a_lost_machine_is_never_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool, charged: int
) -> None:
    sweep = opened_in(tmp_path / "store", ALONE)
    deaths = iter(range(5))

    def dies(key: str, at: int) -> None:
        if next(deaths, None) is not None:
            raise Died

    run_until_it_ends(sweep, monkeypatch, dies, node_lost=lambda node: lost and node == "here")
    assert charges(sweep) == [charged]
    assert states(sweep) == ["done" if lost else "failed"]


def test_cells_that_live_alone_but_not_together_all_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two cells need more memory than there is."""
    sweep = opened_in(tmp_path / "store")
    _, second = sweep.by_stage[0]

    def dies(key: str, at: int) -> None:
        newest = sweep.store.folder(second).attempts.newest()
        if newest is not None and newest.outcome == "running" and newest.shared_by == 2:
            raise Died

    run_until_it_ends(sweep, monkeypatch, dies)
    assert states(sweep) == ["done", "done"]
    assert charges(sweep) == [0, 0]


def test_files_that_cannot_be_claimed_stop_only_their_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = opened_in(tmp_path / "store")
    first, _ = sweep.by_stage[0]
    claim = TrainingFolder.claim

    def refuse(folder: TrainingFolder, *arguments: str, **more: object) -> int:
        if folder.folder.name.endswith(first.key):
            raise StorageError("no space left")
        return claim(folder, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainingFolder, "claim", refuse)
    _, failures = run_until_it_ends(sweep, monkeypatch, lambda key, at: None)
    assert [(event.key, event.kind) for event in failures] == [(first.key, "storage")]
    assert states(sweep) == ["waiting", "done"]
    assert charges(sweep) == [0, 0]
