"""What Ray Tune is given in place of its own parts, without a running Ray. Loading Tune takes seconds."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import ray
from goal_sweep.runners.execution.deaths import read_death
from goal_sweep.runners.execution.tune_parts import (
    UnitCallback,
    UnitOrder,
    UnitQueue,
    memory_kills_end_one_worker,
    request,
)
from goal_sweep.runners.execution.unit_watch import UnitWatch
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.search import Searcher

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.execution import tune_parts
from goal_sweep.runners.execution.capacity import Resources

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
    with memory_kills_end_one_worker():
        manager._actor_task_failed(tracked_actor_task=task, exception=error)
    (died,) = heard
    assert isinstance(died, RayActorError)
    assert read_death(f"ray.exceptions.{died}").kind == "memory"
    with pytest.raises(RuntimeError):  # it is as before
        manager._actor_task_failed(tracked_actor_task=task, exception=error)


@pytest.mark.parametrize("change", ["gone", "another version"])
def test_a_ray_without_the_replaced_function_is_refused_at_once(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a memory kill would end the whole launch again, and nobody would know before."""
    if change == "gone":
        monkeypatch.delattr(RayActorManager, "_actor_task_failed")
    else:
        monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.raises(GoalError, match=r"goal-sweep knows Ray 2\.60, and Ray .* is installed"):
        with memory_kills_end_one_worker():
            pass


@dataclass(frozen=True)
class Job:
    """What the watch needs of a job that never starts."""

    name: str
    rank: tuple[int, float] = (0, 0.0)
    plan: ClassVar = SimpleNamespace(units_per_gpu=1)
    watchdog: ClassVar = 20
    unit: ClassVar = SimpleNamespace(label="unit", trainings=())

    def __str__(self) -> str:
        return self.name


class Watch(UnitWatch):
    """A watch on such jobs, with a clock of its own."""

    def __init__(self, *jobs: Job, follow: Mapping[str, Sequence[Job]] = {}) -> None:
        self.now = 0.0
        observer: Any = Mock(finished=lambda job, error: follow.get(str(job), ()))
        super().__init__(jobs, observer, NEED, clock=lambda: self.now)  # type: ignore[arg-type]


def queue_of(
    watch: UnitWatch, monkeypatch: pytest.MonkeyPatch, *, most: int = 99, ends: Sequence[bool] = ()
) -> UnitQueue:
    monkeypatch.setattr(ray, "put", lambda job: f"reference to {job}")
    answers = iter(ends)
    return UnitQueue(watch, elsewhere=True, most=most, check=lambda: next(answers, False))


def suggested(queue: UnitQueue) -> str | None:
    suggestion = queue.suggest("x")
    return str(suggestion["job"]).removeprefix("reference to ") if isinstance(suggestion, dict) else suggestion


def test_a_trial_is_one_start_with_its_own_job_and_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(Watch(Job("a"), Job("b")), monkeypatch)
    common = {"bundle": NEED.bundle, "avoid": [], "elsewhere": True}
    assert [queue.suggest("x") for _ in range(2)] == [
        {"unit": 0, "job": "reference to a", **common},
        {"unit": 1, "job": "reference to b", **common},
    ]


def test_the_queue_waits_for_what_follows_a_unit_and_gives_lower_ranks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = {"a": [Job("a2", (1, 0.0))], "b": [Job("b again"), Job("b2", (1, 0.0))]}
    watch = Watch(Job("c", (0, 9.0)), Job("a"), Job("b", (0, 1.0)), follow=follow)
    queue = queue_of(watch, monkeypatch, most=2)

    assert [suggested(queue) for _ in range(2)] == ["a", "b"]
    assert suggested(queue) is None  # c waits, where others can overtake it
    for unit in (1, 2):
        watch.started(unit)
        watch.completed(unit)
    assert not watch.is_over  # nobody has asked what follows them
    watch.ask()
    assert [suggested(queue) for _ in range(2)] == ["b again", "c"]
    watch.restart()  # they were stopped
    assert [suggested(queue) for _ in range(2)] == ["b again", "c"]
    for unit in (0, 4):
        watch.started(unit)
        watch.completed(unit)
    watch.ask()
    assert [suggested(queue) for _ in range(2)] == ["a2", "b2"]
    for unit in (3, 5):
        watch.started(unit)
        assert suggested(queue) is None  # it runs, and more may follow
        watch.completed(unit)
    watch.ask()
    assert suggested(queue) == Searcher.FINISHED


def test_a_unit_that_rests_after_a_death_starts_again_when_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(Job("a"), Job("b"))
    queue = queue_of(watch, monkeypatch)
    assert [suggested(queue) for _ in range(2)] == ["a", "b"]
    for unit, text in ((0, "running low on memory"), (1, "it died")):
        watch.started(unit)
        watch.died(unit, text)
    assert suggested(queue) is None
    watch.now = 2.0
    assert [suggested(queue) for _ in range(2)] == ["b", None]
    watch.now = 11.0
    assert [suggested(queue) for _ in range(2)] == ["a", None]


def test_where_no_unit_runs_the_queue_looks_after_signals_for_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune then asks it once a second, for ten minutes, and does nothing else."""
    watch = Watch(Job("a"))
    queue = queue_of(watch, monkeypatch, ends=[False, False, True])
    assert suggested(queue) == "a"
    assert [suggested(queue) for _ in range(2)] == [None, Searcher.FINISHED]


def test_a_request_names_the_part_of_a_gpu_and_the_machines_to_avoid() -> None:
    plain = request({"bundle": NEED.bundle, "avoid": []})
    assert plain.bundles == [{"CPU": 2.0, "GPU": 0.25, "accelerator_type:A100": 0.001}]
    apart = request({"bundle": NEED.bundle, "avoid": ["abc", "def"]})
    assert apart != plain
    assert apart._kwargs["bundle_label_selector"] == [{"ray.io/node-id": "!in(abc,def)"}]


def test_what_tune_tells_reaches_the_watch(tmp_path: Any) -> None:
    told: list[tuple[Any, ...]] = []
    names = ("started", "reported", "completed", "died")
    watch: Any = SimpleNamespace(**{name: lambda *given, name=name: told.append((name, *given)) for name in names})
    callback = UnitCallback(watch, lambda: told.append(("step",)), lambda: told.append(("check",)))
    (tmp_path / "error.txt").write_text("it broke")
    trial = SimpleNamespace(config={"unit": 7}, error_file=str(tmp_path / "error.txt"))
    callback.setup()  # before Tune's first step, so that its handler of SIGUSR1 is replaced
    callback.on_trial_start(0, [], trial)
    callback.on_trial_result(0, [], trial, {"events": []})
    callback.on_trial_complete(0, [], trial)
    callback.on_trial_error(0, [], trial)
    callback.on_trial_error(0, [], SimpleNamespace(config={"unit": 8}, error_file=None))
    assert told == [
        ("step",), ("started", 7), ("reported", 7, {"events": []}), ("completed", 7), ("died", 7, "it broke"),
        ("died", 8, ""),
    ]  # fmt: skip


def test_what_tune_writes_to_disk_holds_nothing_of_ours() -> None:
    lock: Any = SimpleNamespace(line=None, cannot=lambda: None)  # a function that cannot be pickled
    parts = (
        UnitOrder(),
        UnitQueue(lock, elsewhere=False, most=1, check=lock.cannot),
        tune_parts.UnitStopper(lock),
        UnitCallback(lock, lock.cannot, lock.cannot),
    )
    for part in parts:
        assert type(pickle.loads(pickle.dumps(part))) is type(part)
