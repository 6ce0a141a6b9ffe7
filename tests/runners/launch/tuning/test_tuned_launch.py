"""A launch that searches constants first, with real trainings: what it trains, keeps, shows and repeats."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import LaunchOptions
from goal_sweep.runners.store.archive import add_results, export_results, opened_archive, plan_import
from rich.console import Console

from goal_sweep.goal_core.training.cells.validation import Validation
from goal_sweep.runners.launch import launch as launch_module
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import LaunchOutcome, launch_sweep
from goal_sweep.runners.launch.view.live import overview
from goal_sweep.runners.results import read_results
from goal_sweep.runners.store.garbage import find_garbage, remove_garbage
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import Trail
from tests.helpers.in_process import InProcess, NoTracking, results, sweep_in

ONE_STAGE = "stages=[{name: frozen, epochs: 4, lr: 1e-3, batch_size: 24, warmup_epochs: 1}]"
SPACE = "{objectives.params.tau: {loguniform: [1, 20]}, stages.frozen.lr: {choice: [1e-3, 1e-2]}}"
TUNE = f"tune={{space: {SPACE}, budget: 4, batch: 2}}"
HALVING = "tune.stop_early={first: 2, factor: 2}"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours handles it."""


class InProcessUntil(InProcess):
    """Runs so many units, then is killed while the next one trains."""

    units = 99

    def run(self, jobs: Any, observer: Any) -> None:
        for number, job in enumerate(jobs):
            if InProcessUntil.units <= 0:
                raise Killed
            InProcessUntil.units -= 1
            super().run([job], observer)
            del number


Launch = Callable[..., LaunchOutcome]


def _launch(sweep: OpenedSweep, **options: Any) -> LaunchOutcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "RayUnits", InProcessUntil)
        patch.setattr(launch_module, "SweepTracking", NoTracking)
        return launch_sweep(sweep, LaunchOptions(**options), Console(quiet=True), lambda *words: " ".join(words))


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setattr(InProcessUntil, "units", 99)
    return _launch


def _sweep(folder: Path, *overrides: str) -> OpenedSweep:
    return sweep_in(folder, ONE_STAGE, TUNE, *overrides)


def _trails(sweep: OpenedSweep) -> tuple[Trail, ...]:
    """What the results table says of the search."""
    table = read_results(sweep.store, "tiny")
    assert table is not None
    return table.header.trails


Tested = list[tuple[bool, list[str]]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tested]:
    """A finished sweep, and which splits its units prepared, and whether they were to be tested."""
    folder, tested = tmp_path_factory.mktemp("whole"), list[tuple[bool, list[str]]]()
    prepare = Validation.prepare

    def watched(trainer: Validation, *names: str) -> None:
        tested.append((trainer._unit.tested, list(names)))
        prepare(trainer, *names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validation, "prepare", watched)
        sweep = _sweep(folder)
        assert sweep.is_searching
        assert _launch(sweep).status == 0
    return folder, tested


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep that stopped candidates early."""
    folder = tmp_path_factory.mktemp("early")
    assert _launch(_sweep(folder, HALVING)).status == 0
    return folder


def test_candidates_train_first_without_the_test_split_and_the_choice_reports(
    tmp_path: Path, launch: Launch, whole: tuple[Path, Tested]
) -> None:
    folder, tested = whole
    assert [tests for tests, names in tested if "test" in names] == [True]
    done = _sweep(folder)
    assert not done.is_searching
    found = results(done)
    assert len(found) == len(done.trainings)
    for training in done.trainings:
        metrics = found[training.name][0]
        assert any(name.startswith("test/") for name in metrics) is (training.number is None), training.name
        if training.number is not None:
            assert metrics.keys() >= {"val/rsum", "val/i2t_r1", "val/t2i_r10"}
            assert "test R@1" not in done.store.folder(training).log_text()
    # con/con has no tau, and so two different candidates.
    assert [len(trail.candidates) for trail in _trails(done)] == [2, 4]
    for trail in _trails(done):
        scores = [candidate.score or 0.0 for candidate in trail.candidates]
        assert trail.chosen is not None
        assert scores[trail.chosen] == max(scores)
    # The default grid has the numbers of the same sweep without a search.
    plain = sweep_in(tmp_path, ONE_STAGE)
    assert launch(plain).status == 0
    for name, numbers in results(plain).items():
        assert found[name] == numbers
    # And with everything done, nothing is trained again.
    InProcessUntil.units = 0
    assert launch(_sweep(folder)).found_nothing_to_do


def test_what_was_killed_continues_with_the_same_candidates_and_the_same_choice(
    tmp_path: Path, launch: Launch, early: Path
) -> None:
    overrides = (HALVING, "execution.cells_per_unit=2")
    for units in (1, 2, 3):
        InProcessUntil.units = units
        with pytest.raises(Killed):
            launch(_sweep(tmp_path, *overrides))
    InProcessUntil.units = 99
    assert launch(_sweep(tmp_path, *overrides)).status == 0
    broken, unbroken = _sweep(tmp_path, *overrides), _sweep(early, HALVING)
    assert _trails(broken) == _trails(unbroken)
    assert results(broken) == results(unbroken)
    # Nothing was trained twice.
    assert {one.name for one in tmp_path.rglob("attempts/*.json")} == {"1.json"}


def test_a_larger_budget_trains_the_new_candidates_alone(tmp_path: Path, launch: Launch) -> None:
    assert launch(_sweep(tmp_path, "tune.budget=2")).status == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("result.json")}
    larger = _sweep(tmp_path, "tune.budget=4")
    new = [one for one in larger.trainings if one.number is not None and larger.store.folder(one).result() is None]
    assert [(one.cell.objective.name, one.number) for one in new] == [("sig-ms/cir", 2), ("sig-ms/cir", 3)]
    assert launch(larger).status == 0
    assert {path: path.read_bytes() for path in before} == before
    after = _sweep(tmp_path, "tune.budget=4")
    tuned = [one for one in after.reporting if one.grids == ("tuned",)]
    assert len(list(tmp_path.rglob("result.json"))) - len(before) in (2, 2 + len(tuned))


def test_a_candidate_that_goes_on_ends_as_one_that_never_stopped(early: Path, whole: tuple[Path, Tested]) -> None:
    halved, full = _sweep(early, HALVING), _sweep(whole[0])
    ends = {one.key: one for one in halved.trainings if one.number is not None and not one.until}
    assert any(one.continues for one in ends.values())
    of_full, of_halved = results(full), results(halved)
    numbers = {one.key: of_full[one.name] for one in full.trainings}
    for key, training in ends.items():
        assert of_halved[training.name] == numbers[key]
    assert {one.epochs for one in _trails(halved)[1].candidates} == {2, 4}
    # The states of those that might have gone on are not needed any more.
    garbage = find_garbage(halved.store, halved.trainings)
    stopped = {one.name for one in halved.trainings if one.until}
    assert {one.what for one in garbage if one.kind == "states"} == stopped


def copied(folder: Path, target: Path) -> Path:
    shutil.copytree(folder / "store", target / "store")
    return target


def test_a_candidate_is_trained_again_although_its_states_are_gone(tmp_path: Path, launch: Launch, early: Path) -> None:
    """`gc` removes the states of candidates that have ended; then one of those that went on is found damaged."""
    sweep = _sweep(copied(early, tmp_path), HALVING)
    numbers, trail = results(sweep), _trails(sweep)
    assert remove_garbage(sweep.store, "tiny", sweep.trainings)
    went_on = next(one for one in sweep.trainings if one.continues)
    sweep.store.folder(went_on).path("result.json").write_text("{")
    assert launch(_sweep(tmp_path, HALVING)).status == 0
    again = _sweep(tmp_path, HALVING)
    assert not again.is_searching
    assert (results(again), _trails(again)) == (numbers, trail)


def test_a_search_works_with_two_stages_and_shares_what_is_equal(tmp_path: Path, launch: Launch) -> None:
    space = "{stages.frozen.lr: {choice: [1e-3, 1e-2]}, stages.finetune.lr: {choice: [1e-4, 1e-3]}}"
    short = "stages.frozen={name: frozen, epochs: 1, lr: 1e-3, batch_size: 24}"
    overrides = (f"tune={{space: {space}, budget: 4}}", short, "objectives={only: [sig/con]}")
    assert launch(sweep_in(tmp_path, *overrides)).status == 0
    sweep = sweep_in(tmp_path, *overrides)
    frozen, finetune = ([one for one in stage if one.number is not None] for stage in sweep.by_stage)
    assert (len(frozen), len(finetune)) == (2, 4)
    assert _trails(sweep)[0].names == ("frozen.lr", "finetune.lr")
    assert {one.point for one in frozen} >= {"candidate 0 frozen.lr 0.001"}


def test_an_objective_whose_candidates_fail_reports_its_default(
    tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = InProcess.run

    def failing(units: InProcess, jobs: Any, observer: Any) -> None:
        for job in jobs:
            job = replace(job, code="another") if not job.plan.tested else job  # which every worker refuses
            train(units, [job], observer)

    monkeypatch.setattr(InProcessUntil, "run", failing)
    outcome = launch(_sweep(tmp_path, "resources.max_attempts=1"))
    assert outcome.status in (1, 75)
    assert not [one for one in _sweep(tmp_path).reporting if "tuned" in one.grids]


def test_the_view_says_what_a_search_does(tmp_path: Path, whole: tuple[Path, Tested]) -> None:
    def shown(of: OpenedSweep) -> str:
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(overview(of.progress(), "tiny"))
        return console.export_text()

    before = shown(_sweep(tmp_path))
    assert "search random: 2 to 4 of 4 candidates per objective, 0 of 6 ended" in before
    assert "scenes vsepp test_resnet frozen, candidates: 0 of 6 done" in before
    text = shown(_sweep(whole[0]))
    assert "search over: " in text
    assert "frozen, candidates: 6 of 6 done" in text


def test_an_archive_carries_candidates_and_the_trail(tmp_path: Path, early: Path) -> None:
    sweep = _sweep(early, HALVING)
    file, other = tmp_path / "results.tar.gz", Store(tmp_path / "other")
    done, asked = export_results(sweep, sweep.store, file)
    assert done == asked == len(sweep.trainings)
    with opened_archive(file) as archive:
        assert [one.key for one in archive.trainings] == [one.key for one in sweep.trainings]
        outcome = plan_import(archive, other)
        path = add_results(archive, outcome, other, "sqlite:///mlflow.db")
    assert len(outcome.added) == done
    assert archive.trails == sweep.trails
    assert json.loads(path.read_text())["tune"]["budget"] == 4
