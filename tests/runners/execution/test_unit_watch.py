"""What the driver makes of starts, reports and deaths on a cluster, without Ray."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.execution.deaths import MOST
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_watch import LOOK_S, UnitWatch, _Unit

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.goal_core.training import EpochDone, TrainingFailed
from goal_sweep.runners.execution.capacity import Machine, Resources
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import Attempt, TrainingFolder, charged_failures
from goal_sweep.sweeps import pack
from tests.helpers.store_cases import record
from tests.helpers.sweep_cases import opened_in

DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly"
MEMORY = "ray.exceptions.RayActorError: OutOfMemoryError: node running low on memory"


class Observer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.over: list[tuple[UnitJob, str]] = []
        self.stopping = False

    def note(self, line: str) -> None:
        self.said.append(line)

    def finished(self, job: UnitJob, error: str = "") -> Sequence[UnitJob]:
        self.over.append((job, error))
        return ()

    def started(self, *arguments: Any, **named: Any) -> None:
        pass

    ended = events = step = started


class Cluster:
    """A watch on the units of a sweep, one for each training, on two machines."""

    def __init__(self, sweep: OpenedSweep) -> None:
        self.sweep, self.observer, self.now = sweep, Observer(), 0.0
        self.machines = [
            Machine(id=name, host=name, address="10.0.0.1", resources={"CPU": 9.0}) for name in ("good", "bad")
        ]
        self.jobs = [sweep.job(unit, "L", {}) for unit in pack(sweep.by_stage[0], sweep.config.execution)]
        need = Resources(cpus=1, gpus=0)
        self.watch = UnitWatch(self.jobs, self.observer, need, lambda: self.machines, clock=lambda: self.now)
        self.look()

    def look(self) -> None:
        self.now += LOOK_S
        self.watch.step()

    def avoid(self, unit: int) -> tuple[str, ...]:
        """The machines that a unit which asks for room now must not start on."""
        waiting, taken = self.watch._waiting, self.watch._taken
        asks = waiting.pop(unit, None) or taken.pop(unit, None) or _Unit(self.jobs[unit])
        asks.start, asks.run, self.watch._waiting = 0.0, None, {unit: asks}
        start, self.watch._waiting = self.watch.take(most=99), waiting
        assert start is not None
        return tuple(start["avoid"])

    def ended(self) -> list[tuple[int, str]]:
        """The units that have ended for good, each with its error."""
        self.watch.ask()
        return [(self.jobs.index(job), error) for job, error in self.observer.over]

    def begins(self, unit: int, machine: str) -> None:
        """A worker starts a unit and claims its training."""
        self.avoid(unit)
        self.watch.started(unit)
        self.folder(unit).claim("L", node=machine)
        self.watch.reported(unit, {"node": machine, "events": [], "began": True})

    def fails(self, unit: int, machine: str) -> None:
        """A worker starts a unit and records an error."""
        self.begins(unit, machine)
        (training,) = self.jobs[unit].unit.trainings
        folder = self.sweep.store.folder(training)
        folder.claim("L", node=machine)
        folder.fail("no driver")
        failed = TrainingFailed(key=training.key, kind="error", reason="no driver", trace="")
        self.watch.reported(unit, {"node": machine, "events": [failed]})
        self.watch.completed(unit)

    def folder(self, unit: int) -> TrainingFolder:
        return self.sweep.store.folder(self.jobs[unit].unit.trainings[0])

    def attempts(self, unit: int) -> list[Attempt]:
        return self.folder(unit).attempts.all()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    objectives = "objectives={only: [con/con, sig/cir, lin/nca, sig-ms/cir]}"
    return Cluster(opened_in(tmp_path / "store", objectives, "execution={sharing: none, cells_per_unit: 0}"))


def test_a_machine_on_which_everything_fails_is_left_alone_and_its_cells_are_not_charged(cluster: Cluster) -> None:
    for unit in range(3):
        assert cluster.avoid(unit) == ()
        cluster.fails(unit, "bad")
    assert cluster.avoid(3) == ("bad",)
    assert [charged_failures(cluster.attempts(unit)) for unit in range(3)] == [0, 0, 0]
    assert cluster.ended() == [(0, ""), (1, ""), (2, "")]
    assert "machine bad (10.0.0.1) is left alone for 30 min" in cluster.observer.said[0]


def test_errors_on_a_machine_where_others_succeed_are_charged(cluster: Cluster) -> None:
    cluster.begins(3, "bad")
    for unit in range(3):
        cluster.fails(unit, "bad")
        epoch = EpochDone(key=cluster.jobs[3].unit.trainings[0].key, record=record(1))
        cluster.watch.reported(3, {"node": "bad", "events": [epoch]})
    assert cluster.avoid(0) == ()
    assert [charged_failures(cluster.attempts(unit)) for unit in range(3)] == [1, 1, 1]


def test_a_unit_whose_worker_died_starts_elsewhere_where_it_can(cluster: Cluster) -> None:
    cluster.begins(0, "bad")
    cluster.watch.died(0, DIED)
    (line,) = cluster.observer.said
    assert "its worker died; restarting from the last checkpoints" in line
    assert cluster.avoid(0) == ("bad",)
    assert cluster.avoid(1) == ()
    cluster.machines = cluster.machines[1:]
    cluster.look()
    assert cluster.avoid(0) == ()


@pytest.mark.parametrize("neighbours", [True, False])
def test_an_end_for_want_of_memory_is_the_cells_own_only_where_it_was_alone(cluster: Cluster, neighbours: bool) -> None:
    cluster.begins(0, "bad")
    cluster.begins(1, "bad" if neighbours else "good")
    cluster.watch.died(0, MEMORY)
    (attempt,) = cluster.attempts(0)
    reason = "Ray ended its worker, because the memory of the machine was nearly full"
    assert (attempt.outcome, attempt.reason, attempt.charged) == ("lost", reason, False)
    assert attempt.died is not neighbours  # then its next start judges who is at fault
    (line,) = cluster.observer.said
    assert f"{reason}; restarting from the last checkpoints in 10 s" in line
    assert cluster.attempts(1)[0].outcome == "running"


def test_a_unit_whose_workers_die_before_they_begin_is_given_up_at_last(cluster: Cluster) -> None:
    for _ in range(MOST["died"]):
        assert not cluster.ended()
        cluster.avoid(0)
        cluster.watch.started(0)
        cluster.watch.reported(0, {"node": "good", "events": []})
        cluster.watch.died(0, DIED)
    ((unit, error),) = cluster.ended()
    assert (unit, error.partition(": ")[0]) == (0, "ray.exceptions.ActorDiedError")
    assert len(cluster.observer.said) == MOST["died"] - 1


def test_a_report_that_arrives_after_the_end_of_its_worker_is_heard_and_starts_nothing(cluster: Cluster) -> None:
    cluster.begins(0, "good")
    cluster.watch.died(0, DIED)
    cluster.watch.reported(0, {"node": "good", "events": []})
    assert cluster.watch.is_idle
    assert not cluster.ended()


def test_a_launch_ends_when_every_machine_lacks_what_its_units_need(cluster: Cluster) -> None:
    for unit, machine in enumerate(("bad", "good")):
        cluster.avoid(unit)
        cluster.watch.started(unit)
        cluster.watch.reported(unit, {"node": machine, "events": [], "unfit": f"{machine}: no such folder /data"})
        cluster.watch.died(unit, "UnfitMachineError")
    with pytest.raises(
        DeviceError, match="no machine of the cluster can train this sweep: good: no such folder /data; b"
    ):
        cluster.look()
    assert not any("restart" in line or "worker" in line for line in cluster.observer.said)


def test_a_launch_whose_units_may_start_nowhere_any_more_begins_anew(cluster: Cluster) -> None:
    cluster.begins(0, "bad")
    cluster.watch.died(0, DIED)
    assert cluster.avoid(0) == ("bad",)
    cluster.look()
    assert not cluster.watch.is_stuck
    cluster.machines = cluster.machines[1:]  # only the one to avoid is left
    cluster.look()
    assert cluster.watch.is_stuck


def test_a_look_at_a_thousand_units_reads_no_file(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = cluster.jobs * 250
    watch = UnitWatch(
        jobs, cluster.observer, Resources(cpus=1, gpus=0), lambda: cluster.machines, clock=lambda: cluster.now
    )
    while watch.take(most=1) is not None:
        watch.started(unit := max(watch._taken))
        watch.reported(unit, {"node": "good", "events": [], "began": True})

    def refused(*arguments: Any, **named: Any) -> Any:
        raise AssertionError(f"a look at the units reads {arguments}")

    with monkeypatch.context() as patched:
        for module, name in ((builtins, "open"), (os, "open"), (os, "stat"), (os, "scandir"), (os, "listdir")):
            patched.setattr(module, name, refused)
        for _ in range(100):
            cluster.now += LOOK_S
            watch.step()
    assert not cluster.observer.said
