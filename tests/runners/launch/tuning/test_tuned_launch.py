"""A launch that searches constants first, with real trainings: what it trains, keeps, shows and repeats."""

import os
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import DivergedError
from goal_sweep.runners.cli.models import trained_results
from goal_sweep.runners.cli.options import SweepArguments
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.view import overview
from goal_sweep.runners.results import read_results
from goal_sweep.sweeps import Study
from tests.helpers.forked import exit_status, forked
from tests.helpers.in_process import counted, launch, results, sweep_in
from tests.helpers.pretended import Trains
from tests.helpers.progress_cases import printed

ONE_STAGE = "stages=[{name: frozen, epochs: 2, lr: 1e-3, batch_size: 24, warmup_epochs: 1}]"
SPACE = "{objectives.params.tau: {loguniform: [1, 20]}, stages.frozen.lr: {choice: [1e-3, 1e-2]}}"
TUNE = f"tune={{space: {SPACE}, search: tpe, budget: 4, batch: 2}}"


def _sweep(folder: Path, *overrides: str) -> OpenedSweep:
    return sweep_in(folder, ONE_STAGE, TUNE, *overrides)


def _studies(sweep: OpenedSweep) -> tuple[Study, ...]:
    """What the results table says of the search."""
    table = read_results(sweep.store, "tiny")
    assert table is not None
    return table.header.studies


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep."""
    folder = tmp_path_factory.mktemp("whole")
    sweep = _sweep(folder)
    assert sweep.is_searching
    with pytest.MonkeyPatch.context() as patch:
        assert launch(sweep, patch).status == 0
    return folder


def test_candidates_train_first_without_the_test_split_and_the_choice_reports(tmp_path: Path, monkeypatch, whole: Path):
    done = _sweep(whole)
    assert not done.is_searching
    found = results(done)
    assert len(found) == len(done.trainings)
    for training in done.trainings:
        metrics = found[training.name][0]
        assert any(name.startswith("test/") for name in metrics) is (training.number is None), training.name
        if training.number is not None:
            assert metrics.keys() >= {"val/rsum", "val/i2t_r1", "val/t2i_r10"}
    # con/con has no tau, and so two different candidates.
    assert [len(study.candidates) for study in _studies(done)] == [2, 4]
    for study in _studies(done):
        scores = [candidate.score or 0.0 for candidate in study.candidates]
        assert study.chosen is not None
        assert scores[study.chosen] == max(scores)
    # The default grid has the numbers of the same sweep without a search.
    plain = sweep_in(tmp_path, ONE_STAGE)
    assert launch(plain, monkeypatch).status == 0
    for name, numbers in results(plain).items():
        assert found[name] == numbers
    assert launch(_sweep(whole), monkeypatch).found_nothing_to_do
    chosen = _studies(done)
    assert launch(_sweep(whole, "tune.budget=1"), monkeypatch).status == 0
    assert trained_results(done.config, SweepArguments("a.yaml")).header.studies == chosen != _studies(done)
    assert launch(_sweep(whole), monkeypatch).found_nothing_to_do


def test_what_was_killed_continues_with_the_same_candidates_and_the_same_choice(tmp_path, monkeypatch, whole: Path):
    def dies_after(units: int) -> None:
        left = [None] * units

        def train(job: UnitJob, send: Send) -> None:
            if not left:
                os._exit(9)
            left.pop()
            run_unit(job, send)

        launch(_sweep(tmp_path), monkeypatch, train=train)

    assert [exit_status(forked(dies_after, units)) for units in (1, 1)] == [9, 9]
    assert launch(_sweep(tmp_path), monkeypatch).status == 0
    broken, unbroken = _sweep(tmp_path), _sweep(whole)
    assert _studies(broken) == _studies(unbroken)
    assert results(broken) == results(unbroken)
    assert counted(broken) == []


def test_a_larger_budget_trains_the_new_candidates_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trains(tmp_path, monkeypatch, ONE_STAGE, TUNE, "tune.budget=2").launch().status == 0
    larger = Trains(tmp_path, monkeypatch, ONE_STAGE, TUNE)
    new = [one for one in larger.sweep.trainings if larger.sweep.statuses()[one].state == "waiting"]
    asked = [one for one in new if one.number is not None]
    assert [(one.cell.objective.name, one.number) for one in asked] == [("sig-ms/cir", 2), ("sig-ms/cir", 3)]
    assert larger.launch().status == 0
    assert larger.groups[0] == [one.key for one in asked]


def test_a_search_works_with_two_stages_and_shares_what_is_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    space = "{stages.frozen.lr: {choice: [1e-3, 1e-2]}, stages.finetune.lr: {choice: [1e-4, 1e-3]}}"
    settings = (f"tune={{space: {space}, budget: 4}}", "objectives={only: [sig/con]}")
    assert Trains(tmp_path, monkeypatch, *settings).launch().status == 0
    sweep = sweep_in(tmp_path, *settings)
    frozen, finetune = ([one for one in stage if one.number is not None] for stage in sweep.by_stage)
    assert (len(frozen), len(finetune)) == (2, 4)
    assert _studies(sweep)[0].names == ("frozen.lr", "finetune.lr")
    assert {one.configuration for one in frozen} >= {"candidate 0 frozen.lr 0.001"}


def test_an_objective_whose_candidates_fail_reports_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trains = Trains(tmp_path, monkeypatch, ONE_STAGE, TUNE)
    candidates = {one.key for one in trains.sweep.trainings if one.number is not None}

    def act(key: str, epoch: int) -> None:
        searched = {one.key for one in trains.sweep.searched().trainings if one.number is not None}
        if key in candidates | searched:
            raise DivergedError("NaN in the gradient")

    assert trains.launch(act).status == 1
    sweep = _sweep(tmp_path)
    assert {one.grids for one in sweep.reporting} == {("default",)}
    assert set(results(sweep)) == {one.name for one in sweep.reporting}


def test_the_view_says_what_a_search_does(tmp_path: Path, whole: Path) -> None:
    before = printed(overview(_sweep(tmp_path).progress(), "tiny"), 120)
    assert "search tpe: 2 of 4 candidates per objective, 0 of 4 ended" in before
    assert "scenes vsepp test_resnet frozen, candidates: 0 of 4 done" in before
    text = printed(overview(_sweep(whole).progress(), "tiny"), 120)
    assert "search over: " in text
    assert "frozen, candidates: 6 of 6 done" in text
