"""A sweep with axes in a launch: its units, what follows them, and what the user sees."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.runners.execution.worker import unit_plan
from goal_sweep.runners.launch.view import overview
from goal_sweep.runners.results import update_results
from goal_sweep.sweeps import Unit
from tests.helpers.pretended import Trains
from tests.helpers.progress_cases import printed
from tests.helpers.sweep_cases import opened_in

TAU = "objectives={only: [con/con, sig/cir], params: {tau: [10, 1]}}"
LRS = ("stages.frozen.lr=[4e-3,1e-3]", "stages.finetune.grad_clip=[2,1]")


def test_a_unit_gives_each_training_its_own_settings(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path, TAU, *LRS)
    unit = Unit(trainings=tuple(sweep.by_stage[0]))
    plan = unit_plan(unit, sweep.store, sweep.config.resources, sweep.config.execution)
    assert plan.stage.lr == 4e-3
    assert [(one.objective.params, one.own) for one in plan.trainings] == [
        ({}, {}),
        ({"tau": 10.0}, {}),
        ({}, {"lr": 1e-3}),
        ({"tau": 10.0}, {"lr": 1e-3}),
        ({"tau": 1.0}, {}),
        ({"tau": 1.0}, {"lr": 1e-3}),
    ]
    for one, training in zip(plan.trainings, sweep.by_stage[0], strict=True):
        assert replace(plan.stage, **one.own) == training.stage
        assert one.key == training.key


def test_every_training_that_starts_from_one_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Trains(tmp_path, monkeypatch, TAU, *LRS)
    frozen, finetune = trains.sweep.by_stage
    assert trains.launch().status == 0
    assert trains.groups == [[one.key for one in frozen], [one.key for one in finetune]]
    assert Counter(one.before for one in finetune) == dict.fromkeys(frozen, 2)


def test_status_has_a_grid_for_each_point_and_counts_a_training_once(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path, TAU, *LRS)
    progress = sweep.progress()
    text = printed(overview(progress, "s"), 100)
    titles = [line.partition(": ")[0] for line in text.splitlines() if line.startswith("scenes")]
    assert titles[:4] == [
        f"scenes vsepp test_byobnet frozen, tau {tau} lr {lr}" for tau in (10, 1) for lr in ("0.004", "0.001")
    ]
    assert titles[4] == "scenes vsepp test_byobnet finetune, tau 10 lr 0.004 grad_clip 2"
    assert len(titles) == 4 + 8
    assert sum(progress.counts().values()) == 6 + 12
    assert [len(progress.of_block(block)) for block in progress.blocks] == [2] * 12
    assert "frozen, tau 1 lr 0.001: 0 of 2 done" in text


def test_the_results_table_has_the_axes_and_each_trainings_place(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path, TAU, *LRS)
    table = update_results(sweep.store, sweep)
    assert [(axis.key, axis.values) for axis in table.header.axes] == [
        ("objectives.params.tau", (10, 1)),
        ("stages.frozen.lr", (0.004, 0.001)),
        ("stages.finetune.grad_clip", (2, 1)),
    ]
    assert len(table.header.configurations["frozen"]) == 4
    rows = {row["name"]: row for row in table.rows()}
    assert rows["con/con test_byobnet seed 1 lr 0.001 (frozen)"]["configuration"] == "tau * lr 0.001"
    assert rows["sig/cir test_byobnet seed 1 tau 1 lr 0.004 (frozen)"]["configuration"] == "tau 1 lr 0.004"
    last = rows[sweep.trainings[-1].name]
    assert last["configuration"] == "tau 1 lr 0.001 grad_clip 1"
    settings = ("objective.tau", "stages.frozen.lr", "stages.finetune.grad_clip")
    assert [last[f"setting/{name}"] for name in settings] == ["1", "0.001", "1"]
