"""What a launch starts when a unit ends, without Ray: the next stage, second tries, and nothing that must not start."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from goal_sweep.goal_core.data import SplitCounts
from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.goal_core.training import TrainingFailed
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.launch.launcher import Launcher
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from goal_sweep.runners.launch.remaining.units import UnitQueue
from goal_sweep.runners.launch.view.live import LiveView
from goal_sweep.runners.planning.prices import Known, Prices
from goal_sweep.runners.store import BEST, charged_failures
from goal_sweep.sweeps import Training
from tests.helpers.in_process import NoTracking
from tests.helpers.planning_cases import devices_of
from tests.helpers.store_cases import train
from tests.helpers.sweep_cases import opened_in


class Launch:
    """A launch of four cells and two stages, whose units end when a test says so. A unit has two cells."""

    def __init__(self, folder: Path, *settings: str, options: LaunchOptions | None = None) -> None:
        objectives = "objectives={only: [con/con, sig/cir, lin/nca, sig-ms/cir]}"
        sharing = "execution={sharing: trunk, cells_per_unit: 2}"
        self.sweep = opened_in(folder / "store", objectives, sharing, *settings).searched()
        self.options = options or LaunchOptions()
        self.plan = LaunchPlan(self.sweep, self.options)
        self._said = StringIO()
        console = Console(file=self._said, width=1000)
        view = LiveView(self.plan.progress, "s", console, lambda *words: " ".join(words))
        self.launcher = Launcher(self.sweep, self.options, self.plan, view, NoTracking(), "L")  # type: ignore[arg-type]
        self.first = self.launcher._queue.round()

    @property
    def said(self) -> str:
        """What the user was told."""
        return self._said.getvalue()

    def ends(self, job: UnitJob, fails: Training | None = None, kind: str = "error") -> list[UnitJob]:
        """A worker trains a unit, and one of its trainings may fail. Returns the units that follow."""
        self.launcher.started(job)
        for training in job.unit.trainings:
            folder = self.sweep.store.folder(training)
            folder.claim("L")
            if training == fails:
                charged = kind != "damaged"
                folder.fail("it broke", charged=charged, final=kind == "diverged")
                failed = TrainingFailed(key=training.key, kind=kind, reason="it broke", trace="")
                self.launcher.events([failed])
            else:
                train(folder, 2)
        self.launcher.ended(job)
        return list(self.launcher.finished(job))


def names(jobs: list[UnitJob]) -> list[tuple[str, list[str]]]:
    return [(job.unit.stage.name, [one.cell.objective.name for one in job.unit.trainings]) for job in jobs]


def test_a_training_follows_its_own_predecessor_and_waits_for_no_other(tmp_path: Path) -> None:
    launch = Launch(tmp_path)
    slow, fast = launch.first
    assert names(launch.first) == [("frozen", ["con/con", "lin/nca"]), ("frozen", ["sig/cir", "sig-ms/cir"])]
    after = launch.ends(fast)
    assert names(after) == [("finetune", ["sig/cir", "sig-ms/cir"])]
    assert after[0].rank > slow.rank  # should a device be free for one of them only
    assert launch.ends(after[0]) == []
    assert launch.plan.progress.counts() == {"done": 4, "running": 0, "waiting": 4, "failed": 0}
    (last,) = launch.ends(slow)
    assert launch.ends(last) == []
    assert launch.plan.progress.counts()["done"] == 8
    assert launch.launcher._queue.under_way == launch.launcher._queue.round() == []


def test_what_fails_for_good_is_followed_by_nothing_and_its_neighbour_goes_on(tmp_path: Path) -> None:
    launch = Launch(tmp_path)
    broken = launch.first[0].unit.trainings[0]
    assert names(launch.ends(launch.first[0], broken, "diverged")) == [("finetune", ["lin/nca"])]
    assert [launch.plan.progress[one].state for one in launch.sweep.trainings if one.cell == broken.cell] == [
        "failed"
    ] * 2


def test_an_evicted_training_is_tried_again_at_once_until_its_attempts_are_used_up(tmp_path: Path) -> None:
    launch = Launch(tmp_path, "resources.max_attempts=2")
    broken = launch.first[0].unit.trainings[0]
    again, after = launch.ends(launch.first[0], broken)
    assert names([again, after]) == [("frozen", ["con/con"]), ("finetune", ["lin/nca"])]
    assert again.rank < after.rank
    assert launch.ends(again, broken) == []
    assert launch.plan.progress[broken].state == "failed"
    assert charged_failures(launch.sweep.store.folder(broken).attempts.all()) == 2


def test_damaged_weights_are_trained_again_before_what_starts_from_them(tmp_path: Path) -> None:
    launch = Launch(tmp_path)
    (after,) = launch.ends(launch.first[0])
    finetune = after.unit.trainings[0]
    frozen = finetune.before
    assert frozen is not None
    path = launch.sweep.store.folder(frozen).path(BEST)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (again,) = launch.ends(after, finetune, "damaged")
    assert again.unit.trainings == (frozen,)
    (retried,) = launch.ends(again)
    assert retried.unit.trainings == (finetune,)
    assert charged_failures(launch.sweep.store.folder(finetune).attempts.all()) == 0


def test_the_first_failure_ends_the_queue_if_the_user_wants_that(tmp_path: Path) -> None:
    launch = Launch(tmp_path, "resources.max_attempts=1", options=LaunchOptions(fail_fast=True))
    assert launch.ends(launch.first[0], launch.first[0].unit.trainings[0]) == []
    assert launch.launcher.stopping


def test_a_launch_continues_both_stages_at_once(tmp_path: Path) -> None:
    before = Launch(tmp_path)
    before.ends(before.first[1])
    launch = Launch(tmp_path)
    assert names(launch.first) == [
        ("frozen", ["con/con", "lin/nca"]),
        ("finetune", ["sig/cir", "sig-ms/cir"]),
    ]


def queue_of(launch: Launch) -> UnitQueue:
    """Its queue, with nothing under way."""
    queue = launch.launcher._queue
    for training in queue.under_way:
        queue.take_back(training)
    return queue


def prices_of(launch: Launch, **known: float) -> Prices:
    """Prices by which each stage takes so many times as long as counted."""
    size = DataSize(captions=50_000, images=20_000, val=SplitCounts(images=100, captions=500), words=100)
    config = launch.sweep.config
    prices = Prices(config=config, size=size)
    (model,) = config.model.models
    return replace(prices, known={(model, stage): Known("finished", time) for stage, time in known.items()})


@pytest.mark.parametrize(("share", "sizes"), [(None, [2, 2]), ((1, 2), [1, 1])])
def test_units_fit_the_devices(tmp_path: Path, share: tuple[int, int] | None, sizes: list[int]) -> None:
    settings = "execution={sharing: trunk, cells_per_unit: auto}"
    launch = Launch(tmp_path, settings, options=LaunchOptions(share=share))
    assert names(launch.first) == [("frozen", ["con/con", "lin/nca", "sig/cir", "sig-ms/cir"][: sum(sizes)])]
    queue = queue_of(launch)
    queue.fit_to(devices_of(launch.sweep.config, 2, cpus="7 of 8"), prices_of(launch))
    assert sorted(len(job.unit.trainings) for job in queue.round()) == sizes
    assert launch.plan.progress.pace.lanes == 2
    assert launch.plan.progress.pace.priced
    assert "7 of 8" in launch.said


def test_a_search_counts_what_follows_it(tmp_path: Path) -> None:
    tune = "tune={space: {stages.frozen.lr: {loguniform: [1e-3, 1e-2]}}, budget: 2}"
    launch = Launch(tmp_path, "execution={sharing: trunk, cells_per_unit: 4}", "seeds=[1, 2, 3, 4]", tune)
    queue = queue_of(launch)
    queue.fit_to(devices_of(launch.sweep.config, 4), prices_of(launch))
    pace = launch.plan.progress.pace
    # 2 candidates of 4 objectives, then the default and the tuned grid of 4 seeds, in two stages.
    assert [sum(len(unit.trainings) for unit in part) for part in pace.parts] == [2 * 4 * 2, 2 * 4 * 4 * 2]
    assert pace.lanes == 4


def test_the_longest_units_start_first(tmp_path: Path) -> None:
    launch = Launch(tmp_path, "objectives={only: [con/con, sig/cir, lin/nca]}", "data.image.augment=crop_flip")
    queue = queue_of(launch)
    queue.fit_to(devices_of(launch.sweep.config), prices_of(launch))
    jobs = queue.round()
    assert {len(job.unit.trainings) for job in jobs} == {1, 2}
    assert min(jobs, key=lambda job: job.rank) == max(jobs, key=lambda job: len(job.unit.trainings))


def test_a_unit_that_computes_features_comes_before_others_that_need_them(tmp_path: Path) -> None:
    settings = ["seeds=[1, 2]", "execution={sharing: trunk, cells_per_unit: 1}", "data.image.augment=none"]
    launch = Launch(tmp_path, *settings)
    queue = queue_of(launch)
    queue.fit_to(devices_of(launch.sweep.config, 2), prices_of(launch))
    jobs = sorted(queue.round(), key=lambda job: job.rank)
    # Random backbones have features of their own for each seed: two devices compute those of both at the same time.
    assert [job.unit.trainings[0].cell.seed for job in jobs[:2]] == [1, 2]
    # The features are there now: what is tried again does not come before other units for them.
    (again, *_) = launch.ends(jobs[0], jobs[0].unit.trainings[0])
    assert again.unit == jobs[0].unit
    assert again.rank > jobs[1].rank
