"""What the driver makes of the starts, reports and deaths of its units. It knows nothing of Ray Tune."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import DeviceError, GoalError
from goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from runners.execution.avoided import AvoidedMachines
from runners.execution.capacity import CapacityWatch, Machine, Resources
from runners.execution.deaths import Death, Deaths, read_death
from runners.execution.gpu_sharing import Crowding
from runners.execution.memory import Chunks
from runners.execution.signs_of_life import SignsOfLife, count_attempts
from runners.execution.unit_line import UnitLine
from runners.execution.worker import UnitJob
from runners.store import Store, end_attempt, forgive

LOOK_S = 2.0
"""Seconds between looks at the machines of the cluster."""
_OF_MACHINES = ("error", "storage", "inputs")
"""Kinds of failure that a machine may cause."""


class UnitObserver(Protocol):
    """Called in the driver's process while units run."""

    def started(self, job: UnitJob) -> None:
        """Called when a worker has begun a unit."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Called with what happened to the trainings of a unit."""

    def ended(self, job: UnitJob) -> None:
        """Called when a unit's worker has ended, however it ended."""

    def finished(self, job: UnitJob) -> Sequence[UnitJob]:
        """Called when a unit needs no further start. Returns the units that can start because of that."""

    def step(self) -> None:
        """Called several times a second, in the main thread. Signal handlers set here stay in place."""

    def restarts(self, job: UnitJob, why: str, pause: float) -> None:
        """Called when a unit's worker died and the unit starts again after some seconds."""

    def given_up(self, job: UnitJob, error: str) -> None:
        """Called when a unit's workers died too often; `error` is the last error line."""

    def note(self, line: str) -> None:
        """Called with a line for the user."""

    @property
    def stopping(self) -> bool:
        """Whether all units should stop."""


@dataclass(slots=True)
class _Run:
    """One start of a unit."""

    attempts: int
    """Attempts at its trainings before."""
    machine: str = ""
    """Ray's id of the machine; empty until the worker has reported it."""
    epochs: int = 0
    failures: list[str] = field(default_factory=list)


class UnitWatch:
    """Follows the units of one round.

    Args:
        jobs: the units that can start at once.
        observer: receives starts, events and losses, and gives the units that follow.
        need: the resources of a unit that shares no GPU.
        list_machines: asks Ray for the machines alive.
        is_cluster: whether machines may come and go.
        wait: seconds to wait for room on a cluster; None waits as long as it takes.
        avoided: the machines left alone; kept from round to round.
        crowding: how many units may share a GPU; likewise.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        jobs: Sequence[UnitJob],
        observer: UnitObserver,
        need: Resources,
        list_machines: Callable[[], Sequence[Machine]],
        *,
        is_cluster: bool,
        wait: float | None = None,
        avoided: AvoidedMachines | None = None,
        crowding: Crowding | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.line = UnitLine(jobs, lambda job: observer.finished(job))
        self._observer, self._need, self._list_machines = observer, need, list_machines
        self._is_cluster, self._clock = is_cluster, clock
        self._signs = SignsOfLife(observer.note, clock)
        self._deaths = Deaths()
        self._avoided = avoided or AvoidedMachines(need, observer.note, clock)
        self._crowding = crowding or Crowding()
        self._capacity = CapacityWatch(need, observer.note, wait, clock)
        self._runs: dict[int, _Run] = {}
        self._died_on: dict[int, str] = {}
        """The machine on which a unit's worker died last without an epoch."""
        self._asked: dict[int, frozenset[str]] = {}
        """The machines that each unit that waits or runs must not start on."""
        self._looked = clock() - LOOK_S
        self.is_stuck = False
        """Whether every unit that waits must not start on any of the machines that are left; then begin anew."""

    def restart(self) -> None:
        """Let the units that have not ended wait for a start again."""
        self.is_stuck = False
        self._asked.clear()
        self.line.restart()

    @property
    def num_pending(self) -> int:
        """How many units have asked for room and do not run yet."""
        return len(self._asked.keys() - self._runs.keys())

    def fitted(self, unit: int) -> UnitJob:
        """A unit's job, with as many units on its GPU as have room. Call this before each first start."""
        self.line.jobs[unit] = self._crowding.fit(self.line.jobs[unit])
        return self.line.jobs[unit]

    def need(self, unit: int) -> Resources:
        """The resources of a unit."""
        return self._need.shared_by(self.line.jobs[unit].units_per_gpu)

    def avoid(self, unit: int) -> tuple[str, ...]:
        """The ids of the machines that a unit must not start on. Call this for each start."""
        avoided = set(self._avoided.now())
        elsewhere = avoided | {self._died_on.get(unit, "")} - {""}
        if any(machine.fits(self._need) and machine.id not in elsewhere for machine in self._avoided.machines):
            avoided = elsewhere
        self._asked[unit] = frozenset(avoided)
        return tuple(sorted(avoided))

    def started(self, unit: int) -> None:
        """A worker has started for a unit."""
        job = self.line.jobs[unit]
        self._signs.begin(job)
        self._runs[unit] = _Run(count_attempts(job))
        self._observer.started(job)

    def reported(self, unit: int, report: dict[str, Any]) -> None:
        """A worker has sent a report."""
        run = self._runs.setdefault(unit, _Run(0))
        run.machine = report.get("node", run.machine)
        if "unfit" in report:
            self._avoided.unfit(run.machine, report["unfit"])
        events: Sequence[TrainingEvent] = report.get("events", ())
        for event in events:
            if isinstance(event, EpochDone | TrainingDone):
                run.epochs += 1
                self._avoided.succeeded(run.machine)
            elif isinstance(event, TrainingFailed) and event.kind in _OF_MACHINES:
                run.failures.append(event.reason)
        if events:
            self._crowding.look(self.line.jobs[unit], events)
            self._observer.events(events)

    def completed(self, unit: int) -> None:
        """A unit has ended, by itself or because it was stopped."""
        run = self._runs.get(unit)
        if run and run.failures and not run.epochs and self._is_cluster:
            self._forgive(run.machine, self._avoided.failed(run.machine, unit, run.failures[-1]))
        self._end(unit)
        self.line.finish(unit)

    def died(self, unit: int, text: str) -> float:
        """A unit's worker has died, and the unit starts again. Returns the seconds to wait before.

        Args:
            unit: its number.
            text: the error, as Ray Tune keeps it.
        """
        death, job = read_death(text), self.line.jobs[unit]
        run = self._runs.get(unit) or _Run(count_attempts(job))
        run.machine = run.machine or next((one.id for one in self._avoided.machines if one.id in death.ids), "")
        neighbours = sum(other.machine == run.machine for number, other in self._runs.items() if number != unit)
        self._end(unit)
        began, goes_on = count_attempts(job) > run.attempts, ""
        if death.kind == "memory":
            blameless = self._deaths.is_blameless(unit, death, neighbours)
            goes_on = _lose(job, death, died=not blameless)
        elif death.kind == "died" and not run.epochs and self._is_cluster:
            self._died_on[unit] = run.machine
            if run.machine:
                self._forgive(run.machine, self._avoided.failed(run.machine, unit, death.line))
        pause = self._deaths.pause(unit, death, began=began, progressed=run.epochs > 0)
        if death.kind != "unfit":
            self._observer.restarts(job, _WHY[death.kind] + goes_on, pause)
        return pause

    def is_hopeless(self, unit: int) -> bool:
        """Whether a unit is given up when its worker dies once more."""
        return self._deaths.is_hopeless(unit)

    def given_up(self, unit: int, text: str) -> None:
        """A unit's worker has died for the last time."""
        self._end(unit)
        self.line.finish(unit)
        self._observer.given_up(self.line.jobs[unit], read_death(text).line)

    def step(self) -> None:
        """Look at the signs of life and at the machines.

        Raises:
            NoCapacityError: no machine has had room for longer than the user wants to wait.
            DeviceError: every machine of the cluster lacks what the units need.
            LookupError: Ray on this machine has lost its only node.
        """
        self._signs.check()
        now = self._clock()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        machines = self._avoided.machines = self._list_machines()
        if not self._is_cluster:
            if not machines:
                raise LookupError
            return
        if reasons := self._avoided.all_unfit():
            raise DeviceError(f"no machine of the cluster can train this sweep: {reasons}")
        self._capacity.check(machines, running=len(self._runs), avoided=self._avoided.now())
        large = {machine.id for machine in machines if machine.fits(self._need)}
        waiting = [asked for unit, asked in self._asked.items() if unit not in self._runs]
        self.is_stuck = not self._runs and bool(large and waiting) and all(large <= asked for asked in waiting)

    def _end(self, unit: int) -> None:
        self._runs.pop(unit, None)
        self._asked.pop(unit, None)
        self._signs.end(self.line.jobs[unit])
        self._observer.ended(self.line.jobs[unit])

    def _forgive(self, machine: str, units: Iterable[int]) -> None:
        for unit in units:
            job = self.line.jobs[unit]
            for training in job.unit.trainings:
                with suppress(OSError, DamagedError, GoalError):
                    forgive(Store(job.store).folder(training), job.launch_id, machine)


_WHY = {
    "died": "its worker died",
    "machine": "its worker died with its machine",
    "memory": "Ray ended its worker, because the memory of the machine was nearly full",
}


def _lose(job: UnitJob, death: Death, *, died: bool) -> str:
    """End the attempts of a worker that Ray has ended for want of memory.

    With ``died`` the worker filled the memory itself. Then, on a CPU, it goes on with fewer pairs at a time; where it
    cannot, who is at fault is decided as for any death. Returns how it goes on, empty if as before.
    """
    goes_on = ""
    for training in job.unit.trainings:
        with suppress(OSError, DamagedError, GoalError):
            folder, smaller = Store(job.store).folder(training), None
            newest = folder.attempts.newest()
            if died and newest is not None and job.plan.device == "cpu":
                smaller = replace(Chunks.of(job.plan), size=newest.micro_batch).smaller
            reason = f"{death.line}; goes on with {smaller}" if smaller else death.line
            fate = {"died": died and not smaller, "out_of_memory": smaller is not None}
            if end_attempt(folder, job.launch_id, "lost", reason, charged=False, **fate) and smaller:
                folder.log(reason)
                goes_on = f"; goes on with {smaller}"
    return goes_on
