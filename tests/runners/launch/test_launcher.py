"""What a launch tries and what it gives up: missing weights to start from, a full disk, options."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_listener import UnitListener
from goal_sweep.runners.launch.launcher import PROGRESS, Launcher
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from rich.console import Console

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.training import EpochDone, TrainingFailed
from goal_sweep.runners.cluster.slurm import render_sbatch
from goal_sweep.runners.launch.launch import LaunchOutcome, launch_sweep
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.view.live import LiveView
from goal_sweep.runners.launch.view.progress import Pace
from goal_sweep.runners.store import BEST, LAST, RESULT, AttemptFolder, Store, charged_failures
from goal_sweep.sweeps import Training, pack
from tests.helpers.cluster_cases import job
from tests.helpers.store_cases import train, write_weights
from tests.helpers.sweep_cases import opened_in


class NoTracking:
    """Tracking that writes nothing."""

    trouble = ""

    def wait_open(self) -> None:
        """It is open."""

    def sync(self, training: Training) -> None:
        assert training.key

    def sync_all(self, **options: object) -> bool:
        return True


def launcher_of(sweep: OpenedSweep, plan: LaunchPlan, options: LaunchOptions) -> Launcher:
    view = LiveView(plan.progress, "s", Console(quiet=True), lambda *words: " ".join(words))
    return Launcher(sweep, options, plan, view, NoTracking(), "L")  # type: ignore[arg-type]


def test_the_time_left_is_the_same_for_all_cells_that_report_an_epoch_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = opened_in(tmp_path / "store", "stages=[{name: frozen, epochs: 5, lr: 0.1}]")
    console = Console(file=io.StringIO(), width=200)
    plan = LaunchPlan(sweep, LaunchOptions())
    view = LiveView(plan.progress, "s", console, lambda *words: " ".join(words))
    launcher = Launcher(sweep, LaunchOptions(), plan, view, NoTracking(), "L")  # type: ignore[arg-type]
    (unit,) = pack(sweep.trainings, sweep.config.execution)
    plan.progress.pace = Pace([[unit]])
    plan.progress.pace.begin(unit, 0)
    now = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: now)

    launcher.events(
        [
            EpochDone(key=one.key, record={"epoch": 1, "time": 0.0, "metrics": {"val/rsum": 9.0}})
            for one in sweep.trainings
        ]
    )

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # the StringIO above
    # The unit of two cells did one of five epochs in a minute.
    assert [line.rpartition(", ")[2] for line in lines] == ["val rsum 9.0 (left about 4 min)"] * 2


def finish(sweep: OpenedSweep, trainings: list[Training]) -> None:
    for training in trainings:
        folder = sweep.store.folder(training)
        folder.claim("L")
        train(folder, 2)


def unexpected(training: Training, error: Exception) -> None:
    raise error


def test_what_starts_from_an_imported_result_is_failed_with_the_reason_and_the_rest_stays(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store")
    frozen, finetune = sweep.by_stage
    finish(sweep, frozen)
    imported = sweep.store.folder(frozen[0])
    imported.path(BEST).unlink()
    result = imported.path(RESULT)
    result.write_bytes(json_bytes({**(imported.result() or {}), "imported": "results.tar.gz (sha256 0)"}))
    plan = LaunchPlan(sweep, LaunchOptions())
    assert [plan.progress[training].state for training in finetune] == ["failed", "waiting"]
    assert plan.progress[finetune[0]].reason.startswith("its frozen stage has no best.safetensors to start from")
    assert plan.startable(sweep.trainings, ahead=True) == [finetune[1]]


def test_a_disk_that_refuses_is_not_tried_over_and_over_and_costs_no_attempt(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store")
    (training, other), _ = sweep.by_stage
    plan = LaunchPlan(sweep, LaunchOptions())
    launcher = launcher_of(sweep, plan, LaunchOptions())
    folder = sweep.store.folder(training)
    folder.claim("L")
    failed = TrainingFailed(key=training.key, kind="storage", reason="no space", trace="")
    UnitListener({training.key: folder}, launcher.events, 0).events([failed])
    assert charged_failures(folder.attempts.all()) == 0
    assert plan.progress[training].state == "waiting"
    assert plan.exit_status == 1
    assert plan.startable(sweep.trainings, ahead=True) == [other, sweep.by_stage[1][1]]
    # The next launch finds it waiting, and tries it again.
    assert sweep.progress()[training].state == "waiting"


@pytest.mark.parametrize("failed", ["keep", "retry", "only"])
def test_failed_trainings_stay_failed_are_tried_too_or_are_all_that_is_tried(tmp_path: Path, failed: str) -> None:
    sweep = opened_in(tmp_path / "store", "resources.max_attempts=1")
    (training, other), (after, _) = sweep.by_stage
    folder = sweep.store.folder(training)
    folder.claim("L")
    folder.fail("it broke")
    plan = LaunchPlan(sweep, LaunchOptions(failed=failed))  # type: ignore[arg-type]
    tried = {"keep": [other], "retry": [training, other], "only": [training]}[failed]
    assert plan.startable(sweep.by_stage[0], ahead=False) == tried
    assert plan.progress[after].state == ("failed" if failed == "keep" else "waiting")
    assert plan.forgiven == ({} if failed == "keep" else {training: 1})


@pytest.mark.parametrize("failed", ["retry", "only"])
def test_an_interrupted_retry_is_retried_by_the_same_command(tmp_path: Path, failed: str) -> None:
    sweep = opened_in(tmp_path / "store", "resources.max_attempts=1")
    training = sweep.trainings[0]
    folder = sweep.store.folder(training)
    folder.claim("L")
    folder.fail("it broke")
    folder.claim("M")
    folder.end_for("M", "interrupted", "interrupted by the user", charged=False)
    status = sweep.progress()[training]
    assert (status.state, status.reason) == ("failed", "it broke")
    plan = LaunchPlan(sweep, LaunchOptions(failed=failed))  # type: ignore[arg-type]
    assert training in plan.startable(sweep.by_stage[0], ahead=False)
    assert plan.forgiven == {training: 1}


def test_force_is_not_forgotten_when_ray_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = opened_in(tmp_path / "store")
    finish(sweep, sweep.trainings)
    monkeypatch.setattr(OpenedSweep, "check_trainable", lambda self: None)

    class NoRay(NoTracking):
        def __init__(self, *arguments: object, **options: object) -> None:
            raise GoalError("cannot reach Ray")

    monkeypatch.setattr("goal_sweep.runners.launch.launcher.RayUnits", NoRay)
    with pytest.raises(GoalError, match="cannot reach Ray"):
        launch_sweep(sweep, LaunchOptions(force=True), Console(quiet=True), lambda *words: " ".join(words))
    # The results were set aside before, so that a restart does without --force.
    assert LaunchPlan(sweep, LaunchOptions()).startable(sweep.trainings, ahead=True) == sweep.trainings


def test_force_trains_finished_trainings_anew_and_keeps_their_results_aside(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store")
    finish(sweep, sweep.trainings)
    assert LaunchPlan(sweep, LaunchOptions()).startable(sweep.trainings, ahead=True) == []
    plan = LaunchPlan(sweep, LaunchOptions(force=True))
    assert plan.startable(sweep.trainings, ahead=True) == sweep.trainings
    assert plan.startable(sweep.by_stage[1], ahead=False) == []  # it waits for the new first stage
    assert {status.state for status in sweep.statuses().values()} == {"done"}  # nothing has moved yet
    assert plan.set_aside_repeated() == len(sweep.trainings)
    assert {status.state for status in sweep.statuses().values()} == {"waiting"}
    assert len(list(tmp_path.glob("store/cells/*/*.replaced-1/result.json"))) == len(sweep.trainings)


@pytest.mark.parametrize("moved", range(4))
def test_a_force_that_was_cut_off_between_two_moves_leaves_no_result_of_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    sweep = opened_in(tmp_path / "store")
    finish(sweep, sweep.trainings)
    plan, move, moves = LaunchPlan(sweep, LaunchOptions(force=True)), type(sweep.store).set_aside, 0

    def killed(store: Store, training: Training, why: Any) -> Path | None:
        nonlocal moves
        if moves == moved:
            raise KeyboardInterrupt
        moves += 1
        return move(store, training, why)

    with monkeypatch.context() as patch:
        patch.setattr(type(sweep.store), "set_aside", killed)
        with pytest.raises(KeyboardInterrupt):
            plan.set_aside_repeated()
    left = {training for training, status in sweep.statuses().items() if status.state == "done"}
    assert len(left) == len(sweep.trainings) - moved
    assert all(training.before in left for training in left if training.before is not None)

    assert LaunchPlan(sweep, LaunchOptions(force=True)).set_aside_repeated() == len(left)
    assert {status.state for status in sweep.statuses().values()} == {"waiting"}


@pytest.mark.parametrize("where", ["settle", "count"])
def test_a_store_that_refuses_one_training_fails_only_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    sweep = opened_in(tmp_path / "store")
    first, _ = sweep.by_stage[0]
    folder = sweep.store.folder(first).folder

    def refuse(path: Path) -> bool:
        if path.is_relative_to(folder.parent):
            raise StorageError("cannot write there: Read-only file system")
        return False

    if where == "count":
        numbers = AttemptFolder.numbers
        monkeypatch.setattr(AttemptFolder, "numbers", lambda self: refuse(self.folder) or numbers(self))
    else:
        update = AttemptFolder.update
        monkeypatch.setattr(AttemptFolder, "update", lambda self, to: refuse(self.folder) or update(self, to))

    rounds: list[list[str]] = []

    class OneRound(NoTracking):
        """Stands in for Ray and trains what is ready, once, in this process."""

        def __init__(self, *arguments: object, **options: object) -> None:
            pass

        def __enter__(self) -> OneRound:
            return self

        def __exit__(self, *exc: object) -> None:
            pass

        def run(self, jobs: list[UnitJob], observer: Launcher) -> None:
            trainings = [training for job in jobs for training in job.unit.trainings]
            rounds.append([training.key for training in trainings])
            for training in trainings:
                claimed = sweep.store.folder(training)
                if where == "count" and training.cell == first.cell:
                    continue
                claimed.claim("L")
                if training.cell != first.cell:
                    train(claimed, 2)

    plan = LaunchPlan(sweep, LaunchOptions())
    monkeypatch.setattr("goal_sweep.runners.launch.launcher.RayUnits", OneRound)
    launcher = launcher_of(sweep, plan, LaunchOptions())
    assert launcher.run() == 1
    states = [[plan.progress[training].state for training in stage] for stage in sweep.by_stage]
    assert states == [["waiting", "done"], ["waiting", "done"]]
    assert "Read-only file system" in plan.progress[first].reason
    assert plan.progress[first].reason.startswith("storage: ")
    assert len(rounds) == 2


@pytest.mark.parametrize(
    ("what", "is_progress"), [("epoch", True), ("save", True), ("claim", False), ("failure", False)]
)
def test_a_batch_job_learns_whether_a_training_has_saved_something(
    what: str, is_progress: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that leave no such file end the job, so a launch that trains must leave one."""
    assert f'export {PROGRESS}="$folder/progress' in render_sbatch(job(tmp_path))
    monkeypatch.setenv(PROGRESS, str(tmp_path / "progress"))
    sweep = opened_in(tmp_path / "store")
    plan, training = LaunchPlan(sweep, LaunchOptions()), sweep.trainings[0]
    launcher, folder = launcher_of(sweep, plan, LaunchOptions()), sweep.store.folder(training)
    if what == "epoch":
        launcher.events([EpochDone(key=training.key, record={"epoch": 1, "time": 0.0, "metrics": {}})])
    elif what == "failure":
        launcher.events([TrainingFailed(key=training.key, kind="storage", reason="no space", trace="")])
    else:
        folder.claim("L")
        plan.progress.running(training)
        if what == "save":
            folder.save_with(LAST, write_weights)
            folder.release("stopped by SIGUSR1")
        launcher._end_running("stopped by SIGUSR1")
    assert (tmp_path / "progress").exists() is is_progress


def launched(sweep: OpenedSweep, options: LaunchOptions) -> tuple[LaunchOutcome, str]:
    """Launch a sweep in this process. Returns the outcome and what was printed."""
    said = io.StringIO()
    console = Console(file=said, width=500)
    outcome = launch_sweep(sweep, options, console, lambda *words, **named: " ".join(words))
    return outcome, said.getvalue()


def test_a_finished_sweep_with_tracking_down_for_good_ends_soon_and_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goal_sweep.runners.launch.launcher.CATCH_UP_S", 3600.0)  # which is not waited for
    sweep = opened_in(tmp_path / "store", "tracking=http://127.0.0.1:9")
    finish(sweep, sweep.trainings)
    outcome, said = launched(sweep, LaunchOptions())
    assert (outcome.status, outcome.found_nothing_to_do, outcome.is_tracked) == (0, True, False)
    (line,) = [line for line in said.splitlines() if "tracking" in line]
    assert line.startswith("tracking: MLflow is not up to date: tracking does not answer")
    assert line.endswith("(sync brings it up to date)")


def test_status_1_means_failed_cells_and_nothing_else(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path / "store", "resources.max_attempts=1", "tracking=http://127.0.0.1:9")
    # Nothing has failed, so there is nothing to do; that the others wait is no failure.
    assert launched(sweep, LaunchOptions(failed="only"))[0].status == 0
    (one, other), _ = sweep.by_stage
    finish(sweep, [one, *(training for training in sweep.by_stage[1] if training.before == one)])
    folder = sweep.store.folder(other)
    folder.claim("L")
    folder.fail("it broke")
    assert launched(sweep, LaunchOptions())[0].status == 1
