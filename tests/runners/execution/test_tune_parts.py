"""The parts of Ray Tune that are replaced, without a running Ray. Loading Tune takes seconds."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from runners.execution import tune_parts
from runners.execution.capacity import Resources
from runners.execution.deaths import read_death
from runners.execution.tune_parts import UnitOrder, UnitQueue, request, without_habits
from runners.execution.unit_line import UnitLine

NEED = Resources(cpus=2, gpus=0.25, accelerator="A100")


def test_a_worker_that_ray_ends_for_want_of_memory_has_died_and_nothing_else_ends() -> None:
    heard: list[Exception] = []
    actor = SimpleNamespace(actor_id=1, _on_error=lambda actor, error: heard.append(error))
    task = SimpleNamespace(_tracked_actor=actor, _on_error=None)
    manager = RayActorManager.__new__(RayActorManager)
    manager._failed_actor_ids = set()
    manager._cleanup_actor = lambda tracked_actor: None
    error = OutOfMemoryError("Task was killed due to the node running low on memory.")
    with pytest.raises(RuntimeError, match="Caught unexpected exception"):
        manager._actor_task_failed(tracked_actor_task=task, exception=error)
    with without_habits():
        manager._actor_task_failed(tracked_actor_task=task, exception=error)
    (died,) = heard
    assert isinstance(died, RayActorError)
    assert read_death(f"ray.exceptions.{died}").kind == "memory"
    with pytest.raises(RuntimeError):  # the habit is back
        manager._actor_task_failed(tracked_actor_task=task, exception=error)


def test_tunes_state_holds_no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"0001": "all of a trial"}
    monkeypatch.setattr(TuneController, "_get_trial_checkpoints", lambda self: state)
    controller = TuneController.__new__(TuneController)
    with without_habits():
        assert controller._get_trial_checkpoints() == {}
    assert controller._get_trial_checkpoints() == state


def test_a_trial_carries_its_own_job_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_parts.ray, "put", lambda job: f"reference to {job}")
    watch = line_of(Job("a"), Job("b"))
    queue = UnitQueue(watch, elsewhere=True, most=2)
    assert [queue.suggest("x") for _ in range(2)] == [
        {"unit": 0, "job": "reference to a", "elsewhere": True},
        {"unit": 1, "job": "reference to b", "elsewhere": True},
    ]


class Job(NamedTuple):
    """What the line needs of a job."""

    name: str
    rank: tuple[int, float] = (0, 0.0)

    def __str__(self) -> str:
        return self.name


def line_of(*jobs: Job, follow: Mapping[str, Sequence[Job]] = {}) -> Any:
    line = UnitLine(jobs, lambda job: follow.get(str(job), ()))  # type: ignore[arg-type, return-value]
    return SimpleNamespace(line=line, num_pending=0, fitted=lambda unit: line.jobs[unit])


def suggested(queue: UnitQueue) -> str | None:
    found = queue.suggest("x")
    return found["job"].removeprefix("reference to ") if isinstance(found, dict) else found


def test_the_queue_waits_for_what_follows_a_unit_and_gives_lower_ranks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_parts.ray, "put", lambda job: f"reference to {job}")
    follow = {"a": [Job("a2", (1, 0.0))], "b": [Job("b again"), Job("b2", (1, 0.0))]}
    watch = line_of(Job("c", (0, 9.0)), Job("a"), Job("b", (0, 1.0)), follow=follow)
    queue, line = UnitQueue(watch, elsewhere=False, most=2), watch.line

    assert [suggested(queue) for _ in range(2)] == ["a", "b"]
    watch.num_pending = 2
    assert suggested(queue) is None  # c stays in line, where others can overtake it
    watch.num_pending = 0
    for unit in (1, 2):
        line.finish(unit)
        line.feed()
    assert [suggested(queue) for _ in range(4)] == ["b again", "c", "a2", "b2"]
    assert suggested(queue) is None  # all run, and more may follow
    line.restart()  # they were stopped
    assert [suggested(queue) for _ in range(4)] == ["b again", "c", "a2", "b2"]
    for unit in (0, 3, 4, 5):
        line.finish(unit)
    assert suggested(queue) is None  # nobody has asked what follows them
    line.feed()
    assert suggested(queue) == Searcher.FINISHED


def test_a_request_names_the_part_of_a_gpu_and_the_machines_to_avoid() -> None:
    plain = request(NEED, ())
    assert plain.bundles == [{"CPU": 2.0, "GPU": 0.25, "accelerator_type:A100": 0.001}]
    apart = request(NEED, ("abc", "def"))
    assert apart != plain
    assert apart._bound.kwargs == {} or "bundle_label_selector" in apart._kwargs
    assert apart._kwargs["bundle_label_selector"] == [{"ray.io/node-id": "!in(abc,def)"}]


class Trial:
    """What the order needs of one of Tune's trials."""

    PENDING, PAUSED = "PENDING", "PAUSED"

    def __init__(self) -> None:
        self.config, self.status, self.num_failures, self.max_failures = {"unit": 7}, self.PENDING, 0, -1
        self.error_file = "/nowhere"
        self.placed: list[Any] = []

    def should_recover(self) -> bool:
        return self.max_failures < 0 or self.num_failures <= self.max_failures

    def update_resources(self, placed: Any) -> None:
        self.placed.append(placed)


def set_status(trial: Trial, status: str) -> None:
    trial.status = status


def test_a_unit_waits_after_a_death_starts_elsewhere_and_is_given_up_at_last() -> None:
    avoided: list[str] = []
    hopeless: list[bool] = [False]
    watch: Any = SimpleNamespace(
        died=lambda unit, text: avoided.append("abc") or 0.3,
        avoid=lambda unit: tuple(avoided),
        need=lambda unit: NEED,
        is_hopeless=lambda unit: hopeless[0],
    )
    order, trial = UnitOrder(watch), Trial()
    controller = SimpleNamespace(_set_trial_status=set_status)
    order.on_trial_add(controller, trial)
    trial.num_failures = 1
    order.on_trial_error(controller, trial)
    order.on_trial_add(controller, trial)
    assert trial.placed == [request(NEED, ()), request(NEED, ("abc",))]
    assert trial.status == trial.PAUSED
    assert order.choose_trial_to_run(controller) is None
    time.sleep(0.3)
    assert order.choose_trial_to_run(controller) is trial
    hopeless[0] = True
    trial.num_failures = 2
    order.on_trial_error(controller, trial)
    assert trial.max_failures == 2
    trial.num_failures = 3
    order.on_trial_error(controller, trial)  # the last; the callback reports it
    assert avoided == ["abc", "abc"]


def test_what_tune_pickles_is_its_own() -> None:
    watch: Any = SimpleNamespace()
    parts = (UnitOrder(watch), UnitQueue(watch, elsewhere=False, most=1), tune_parts.UnitStopper(lambda: False))
    order, queue, _ = (pickle.loads(pickle.dumps(part)) for part in parts)
    assert (type(order), type(queue)) == (FIFOScheduler, Searcher)
    callback = tune_parts.UnitCallback(watch, lambda: None, lambda: None)
    assert type(pickle.loads(pickle.dumps(callback))) is tune.Callback
