"""`goal-sweep logs`: which cells it shows, and how it follows them."""

from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.cli.launch import log_lines
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.store_cases import claimed
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    """A sweep of two cells: the first has a log and failed for good, the second only has a log."""
    sweep = opened_in(tmp_path / "store", "resources.max_attempts=1")
    for number, training in enumerate(sweep.by_stage[0]):
        folder = claimed(sweep.store.folder(training))
        folder.log(f"line {number}")
        if number == 0:
            folder.end("failed", "it broke", trace="Traceback of it", counted=True)
    return sweep


def shown(sweep: OpenedSweep, pattern: str = "", *, failed: bool = False) -> list[str]:
    return [line.rpartition(" | ")[2] for line in log_lines(sweep, pattern, failed=failed, follow=False)]


def test_every_log_stands_under_its_training(sweep: OpenedSweep) -> None:
    first, second = sweep.by_stage[0]
    heads = [f"== {training.name}  {training.cell.id}" for training in (first, second)]
    assert shown(sweep) == [heads[0], "line 0", heads[1], "line 1"]


def test_a_cell_is_named_by_its_id_or_by_a_part_of_its_name(sweep: OpenedSweep) -> None:
    second = sweep.cells[1]
    assert shown(sweep, second.id[:10]) == shown(sweep, second.objective.name) == shown(sweep)[2:]
    with pytest.raises(GoalError, match="no cell of scenes has 'nobody' in its id or name"):
        shown(sweep, "nobody")


def test_failed_trainings_come_with_their_trace(sweep: OpenedSweep) -> None:
    assert shown(sweep, failed=True)[1:] == ["line 0", "attempt 1 failed: it broke", "Traceback of it"]
    assert shown(sweep, sweep.cells[1].id, failed=True) == ["no failed cell"]


def test_a_failure_shows_while_attempts_are_left_and_without_a_log(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store", "resources.max_attempts=3")
    training = sweep.trainings[0]
    folder = claimed(sweep.store.folder(training))
    folder.end("failed", "no GPU", trace="Traceback of it", counted=True)
    expected = [f"== {training.name}  {training.cell.id}", "attempt 1 failed: no GPU", "Traceback of it"]
    assert shown(sweep) == shown(sweep, failed=True) == expected


def test_before_anything_ran_there_is_nothing(tmp_path: Path) -> None:
    assert shown(opened_in(tmp_path / "empty")) == ["nothing has been logged yet"]


def test_following_prints_what_is_added(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep.store.folder(sweep.trainings[1])
    turns = iter([lambda: folder.log("more"), lambda: None])

    def sleep(seconds: float) -> None:
        turn = next(turns, None)
        if turn is None:
            raise KeyboardInterrupt
        turn()

    monkeypatch.setattr("goal_sweep.runners.cli.launch.time.sleep", sleep)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        lines.extend(log_lines(sweep, sweep.cells[1].id, failed=False, follow=True))
    assert lines[-1].startswith(f"{sweep.trainings[1].name} | ")
    assert lines[-1].endswith(" | more")
