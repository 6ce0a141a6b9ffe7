"""What the driver makes of the starts, reports and deaths of its units. It knows nothing of Ray Tune."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import GoalError
from goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from runners.execution.capacity import Machine, Resources
from runners.execution.deaths import MEMORY, Deaths, read_death
from runners.execution.machines import ClusterMachines
from runners.execution.unit_line import UnitJob, UnitLine
from runners.store import Store, TrainingFolder

LOOK_S = 2.0
"""Seconds between looks at the machines of the cluster."""
START_S = 120
"""Seconds that a worker may take for imports between its first report and its second."""
_OF_MACHINES = ("error", "storage", "inputs")
"""Kinds of failure that a machine may cause."""
_WHY = {
    "died": "its worker died",
    "machine": "its worker died with its machine",
    "memory": MEMORY,
}


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

    heard: float
    """When its worker gave the last sign of life, by the driver's clock."""
    reports: int = 0
    where: str = ""
    """The worker, as it calls itself; empty before its first report."""
    told: bool = False
    """Whether the user has been told that there is no sign."""
    machine: str = ""
    """Ray's id of the machine; empty until the worker has reported it."""
    began: bool = False
    """Whether the worker has claimed trainings."""
    epochs: int = 0
    failures: list[str] = field(default_factory=list)


class UnitWatch:
    """Follows the units of one round.

    Args:
        jobs: the units that can start at once.
        observer: receives starts, events and losses, and gives the units that follow.
        need: the resources of a unit that shares no GPU.
        list_machines: asks Ray for the machines of a cluster that are alive; None where there is only this machine.
        wait: seconds to wait for room on a cluster; None waits as long as it takes.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        jobs: Sequence[UnitJob],
        observer: UnitObserver,
        need: Resources,
        list_machines: Callable[[], Sequence[Machine]] | None = None,
        *,
        wait: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.line = UnitLine(jobs, lambda job: observer.finished(job), clock)
        self._observer, self._need, self._list_machines, self._clock = observer, need, list_machines, clock
        self._deaths, self._checked = Deaths(), clock()
        self._machines = ClusterMachines(need, observer.note, wait, clock)
        self._runs: dict[int, _Run] = {}
        self._died_on: dict[int, str] = defaultdict(str)
        """The machine on which a unit's worker died last without an epoch."""
        self._asked: dict[int, set[str]] = {}
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
    def is_idle(self) -> bool:
        """Whether no unit runs."""
        return not self._runs

    @property
    def ends(self) -> bool:
        """Whether whoever runs the units should stop all of them."""
        return self._observer.stopping or self.is_stuck

    def take(self, most: int) -> dict[str, Any] | None:
        """The next unit that asks for room; None if none waits.

        Args:
            most: units that may ask for room at the same time. The others stay in line, where a unit of a lower rank
                can still overtake them.

        Returns:
            Its number as `unit`, its `job`, the `bundle` of resources that it needs, and in `avoid` the ids of the
            machines that it must not start on.
        """
        pending = len(self._asked.keys() - self._runs.keys())
        unit = self.line.take() if pending < most else None
        if unit is None:
            return None
        avoid = set(self._machines.avoided())
        elsewhere = avoid | {self._died_on[unit]} - {""}
        if any(machine.fits(self._need) and machine.id not in elsewhere for machine in self._machines.machines):
            avoid = elsewhere
        job, self._asked[unit] = self.line.jobs[unit], avoid
        need = self._need.shared_by(job.plan.units_per_gpu)
        return {"unit": unit, "job": job, "bundle": need.bundle, "avoid": sorted(avoid)}

    def started(self, unit: int) -> None:
        """A worker has started for a unit."""
        self._runs[unit] = _Run(self._clock())
        self._observer.started(self.line.jobs[unit])

    def reported(self, unit: int, report: Mapping[str, Any]) -> None:
        """A worker has sent a report (`runners.execution.trial`)."""
        run = self._runs.setdefault(unit, _Run(self._clock()))
        run.machine, run.began = report.get("node", run.machine), run.began or report.get("began", False)
        run.heard, run.reports, run.where = self._clock(), run.reports + 1, report.get("where", "")
        if run.told:
            run.told = False
            self._observer.note(f"{self.line.jobs[unit].unit.label}: its worker{run.where} is back")
        if "unfit" in report:
            self._machines.unfit(run.machine, report["unfit"])
        events: Sequence[TrainingEvent] = report.get("events", ())
        for event in events:
            if isinstance(event, EpochDone | TrainingDone):
                run.epochs += 1
                self._machines.succeeded(run.machine)
            elif isinstance(event, TrainingFailed) and event.kind in _OF_MACHINES:
                run.failures.append(event.reason)
        if events:
            self._observer.events(events)

    def completed(self, unit: int) -> None:
        """A unit has ended, by itself or because it was stopped."""
        run = self._runs.get(unit)
        if run and run.failures and not run.epochs:
            self._failed_on(run.machine, unit, run.failures[-1])
        self._end(unit)
        self.line.finish(unit)

    def died(self, unit: int, text: str) -> None:
        """A unit's worker has died. The unit waits for another start, or is given up.

        Args:
            unit: its number.
            text: the error, as Ray Tune keeps it.
        """
        death, job = read_death(text), self.line.jobs[unit]
        run = self._runs.get(unit) or _Run(self._clock())
        run.machine = run.machine or next((one.id for one in self._machines.machines if one.id in death.ids), "")
        is_alone = all(other is run or other.machine != run.machine for other in self._runs.values())
        self._end(unit)
        if death.kind == "memory":
            # All that runs on a machine fills its memory. A unit that was alone there has filled it itself.
            _change(job, lambda one: one.end_for(job.launch_id, "lost", death.line, charged=False, died=is_alone))
        elif death.kind == "died" and not run.epochs:
            self._died_on[unit] = run.machine
            self._failed_on(run.machine, unit, death.line)
        pause = self._deaths.pause(unit, death.kind, began=run.began, progressed=run.epochs > 0)
        if pause is None:
            self.line.finish(unit)
            self._observer.given_up(job, death.line)
            return
        self.line.put_back(unit, pause)
        if death.kind != "unfit":
            when = f" in {pause:.0f} s" if pause else ""
            self._observer.note(f"{job.unit.label}: {_WHY[death.kind]}; restarting from the last checkpoints{when}")

    def step(self) -> None:
        """Look at the signs of life and at the machines.

        Raises:
            NoCapacityError: no machine has had room for longer than the user wants to wait.
            DeviceError: every machine of the cluster lacks what the units need.
        """
        now = self._clock()
        self._check_signs(now)
        if self._list_machines is None or now - self._looked < LOOK_S:
            return
        self._looked = now
        large = {one.id for one in self._machines.check(self._list_machines(), running=len(self._runs))}
        waiting = [asked for unit, asked in self._asked.items() if unit not in self._runs]
        self.is_stuck = not self._runs and bool(large and waiting) and all(large <= asked for asked in waiting)

    def _check_signs(self, now: float) -> None:
        """Tell the user once of a unit whose worker has given no sign of life for too long.

        Workers report at least four times within their watchdog's time (`runners.execution.trial`). One that does not
        is suspended, its machine cannot be reached, or it is stuck where not even its watchdog runs. Nothing is done
        about it here: a worker that wakes up goes on, and Ray restarts one that is dead.
        """
        deaf_s, self._checked = now - self._checked, now
        for unit, run in self._runs.items():
            job = self.line.jobs[unit]
            if deaf_s > job.watchdog / 4:  # the driver was suspended, or busy, and has not heard what was said
                run.heard = max(run.heard, now - job.watchdog / 4)
            silent_s = now - run.heard
            if job.watchdog and not run.told and silent_s >= max(job.watchdog, START_S if run.reports < 2 else 0):
                run.told = True
                self._observer.note(
                    f"{job.unit.label}: no sign of life from its worker{run.where} for {silent_s:.0f} s; is the "
                    "process or its machine suspended? The launch waits for it"
                )

    def _end(self, unit: int) -> None:
        self._runs.pop(unit, None)
        self._asked.pop(unit, None)
        self._observer.ended(self.line.jobs[unit])

    def _failed_on(self, machine: str, unit: int, reason: str) -> None:
        """Note a failure without an epoch. Of a machine on which all fail, none is charged."""
        for number in self._machines.failed(machine, unit, reason) if machine and self._list_machines else ():
            job = self.line.jobs[number]
            _change(job, partial(TrainingFolder.forgive, launch_id=job.launch_id, node=machine))


def _change(job: UnitJob, change: Callable[[TrainingFolder], object]) -> None:
    """Change the records of a unit, as far as the store lets one: the next launch finds what was cut off."""
    for training in job.unit.trainings:
        with suppress(OSError, DamagedError, GoalError):
            change(Store(job.store).folder(training))
