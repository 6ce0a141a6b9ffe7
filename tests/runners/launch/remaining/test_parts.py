"""Launches that share a sweep: each trains a part of the cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, of_others

from goal_sweep.goal_core.basics.errors import GoalError
from tests.helpers.in_process import launch, results, sweep_in
from tests.helpers.sweep_cases import opened_in

TUNE = "tune={space: {objectives.params.tau: {loguniform: [1, 20]}}, budget: 2}"


@pytest.mark.parametrize("count", [1, 2, 7, 45, 50])
def test_every_cell_is_in_one_part_with_all_its_stages_and_parts_are_even(tmp_path: Path, count: int) -> None:
    sweep = opened_in(tmp_path)
    everything = set(sweep.trainings)
    parts = [everything - of_others(sweep, (number, count)) for number in range(1, count + 1)]
    assert sum(map(len, parts)) == len(everything) == len(set().union(*parts))
    sizes = {len(part) // 2 for part in parts}  # of cells, each with two stages
    assert max(sizes) - min(sizes) <= 1
    for part in parts:
        assert all(one.before in part for one in part if one.before is not None)
        seeds = [one.cell.seed for one in sweep.by_stage[0] if one in part]
        assert len(set(seeds)) <= 1 + len(seeds) // 15 + 1  # cells that share batches stay together


def test_a_search_is_not_shared(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="without --share"):
        of_others(opened_in(tmp_path, TUNE), (1, 2))


@pytest.mark.slow
def test_each_launch_trains_its_part_and_together_they_train_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_in(tmp_path)
    with sweep.store.heartbeat("tiny") as other:  # the other part is being trained
        other.start(one.key for one in of_others(sweep, (1, 2)))
        outcome = launch(sweep, monkeypatch, LaunchOptions(share=(1, 2)))
    assert (outcome.status, outcome.progress.counts()["done"]) == (0, 2)
    assert launch(sweep, monkeypatch, LaunchOptions(share=(2, 2))).progress.counts()["done"] == 4
    alone = sweep_in(tmp_path / "alone")
    assert launch(alone, monkeypatch).status == 0
    assert results(sweep) == results(alone)
