"""What the driver makes of the starts, reports and deaths of its units. It knows nothing of Ray Tune."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from goal_sweep.runners.execution.capacity import Machine, Resources
from goal_sweep.runners.execution.deaths import MEMORY, Kind, pause_after, read_death
from goal_sweep.runners.execution.machines import ClusterMachines
from goal_sweep.runners.execution.unit_job import UnitJob, UnitObserver
from goal_sweep.runners.store import Store, TrainingFolder

LOOK_S = 2.0
"""Seconds between looks at the machines of the cluster."""
_OF_MACHINES = ("error", "storage", "inputs")
"""Kinds of failure that a machine may cause."""
_WHY = {"died": "its worker died", "machine": "its worker died with its machine", "memory": MEMORY}


@dataclass(slots=True)
class _Run:
    """One start of a unit."""

    machine: str = ""
    """Ray's id of the machine; empty until the worker has reported it."""
    began: bool = False
    """Whether the worker has claimed trainings."""
    epochs: int = 0
    failure: str = ""
    """The last failure that its machine may have caused."""


@dataclass(slots=True)
class _Unit:
    """A unit that waits, asks for room or runs."""

    job: UnitJob
    start: float = 0.0
    """When it may start at the earliest."""
    avoid: set[str] = field(default_factory=set)
    """The machines that it must not start on, as it asked for room."""
    died_on: str = ""
    """The machine on which its worker died last without an epoch."""
    deaths: Counter[Kind] = field(default_factory=Counter)
    """Deaths since the last epoch; those from which the store shows who is at fault are not counted."""
    run: _Run | None = None
    """Its present start; None before its worker has started."""


class UnitWatch:
    """Follows the units of one round. A unit is known by its number.

    Args:
        jobs: the units that can start at once.
        observer: receives starts, events and losses, and gives the units that follow.
        need: the resources of a unit that shares no GPU.
        list_machines: asks Ray for the machines of a cluster that are alive; None where there is only this machine.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        jobs: Sequence[UnitJob],
        observer: UnitObserver,
        need: Resources,
        list_machines: Callable[[], Sequence[Machine]] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer, self._need, self._list_machines, self._clock = observer, need, list_machines, clock
        self._machines = ClusterMachines(need, observer.note, clock)
        self._waiting: dict[int, _Unit] = {number: _Unit(job) for number, job in enumerate(jobs)}
        self._taken: dict[int, _Unit] = {}
        """The units that ask for room, or run."""
        self._ended: list[tuple[UnitJob, str]] = []
        """Units that have ended for good, with the error if they were given up, and of which nobody has asked yet what
        follows them."""
        self._jobs = list(jobs)
        self._looked = clock() - LOOK_S
        self.is_stuck = False
        """Whether every unit that waits must not start on any of the machines that are left; then begin anew."""

    def restart(self) -> None:
        """Let the units that have not ended wait for a start again, because whoever ran them has stopped."""
        self.is_stuck = False
        self._waiting |= self._taken
        self._taken.clear()
        for unit in self._waiting.values():
            unit.start, unit.run = 0.0, None

    @property
    def is_idle(self) -> bool:
        """Whether no unit runs."""
        return not any(unit.run for unit in self._taken.values())

    @property
    def is_over(self) -> bool:
        """Whether all units have ended, and nothing follows them."""
        return not (self._waiting or self._taken or self._ended)

    @property
    def ends(self) -> bool:
        """Whether whoever runs the units should stop all of them."""
        return self._observer.stopping or self.is_stuck

    def take(self, most: int) -> dict[str, Any] | None:
        """The next unit that asks for room: that of the lowest rank, then the earliest. None if none waits now.

        Args:
            most: units that may ask for room at the same time. The others wait, where a unit of a lower rank can still
                overtake them.

        Returns:
            Its number as `unit`, its `job`, the `bundle` of resources that it needs, and in `avoid` the ids of the
            machines that it must not start on.
        """
        if sum(unit.run is None for unit in self._taken.values()) >= most:
            return None
        now = self._clock()
        ready = [number for number, unit in self._waiting.items() if unit.start <= now]
        number = min(ready, key=lambda number: (self._waiting[number].job.rank, number), default=None)
        if number is None:
            return None
        unit = self._taken[number] = self._waiting.pop(number)
        unit.avoid = set(self._machines.avoided())
        elsewhere = unit.avoid | {unit.died_on} - {""}
        if any(machine.fits(self._need) and machine.id not in elsewhere for machine in self._machines.machines):
            unit.avoid = elsewhere
        return {"unit": number, "job": unit.job, "bundle": self._need.bundle, "avoid": sorted(unit.avoid)}

    def started(self, number: int) -> None:
        """A worker has started for a unit."""
        unit = self._taken[number]
        unit.run = _Run()
        self._observer.started(unit.job)

    def reported(self, number: int, report: Mapping[str, Any]) -> None:
        """A worker has sent a report (`runners.execution.trial`), maybe one that arrives after its end."""
        unit = self._taken.get(number) or _Unit(self._jobs[number])
        run = unit.run = unit.run or _Run()
        run.machine, run.began = report.get("node", run.machine), run.began or report.get("began", False)
        if "unfit" in report:
            self._machines.unfit(run.machine, report["unfit"])
        events: Sequence[TrainingEvent] = report.get("events", ())
        for event in events:
            if isinstance(event, EpochDone | TrainingDone):
                run.epochs += 1
                self._machines.succeeded(run.machine)
            elif isinstance(event, TrainingFailed) and event.kind in _OF_MACHINES:
                run.failure = event.reason
        if events:
            self._observer.events(events)

    def completed(self, number: int) -> None:
        """A unit has ended, by itself or because it was stopped."""
        unit, run = self._end(number)
        if run.failure and not run.epochs:
            self._failed_on(run.machine, number, run.failure)
        self._ended.append((unit.job, ""))

    def died(self, number: int, text: str) -> None:
        """A unit's worker has died. The unit waits for another start, or is given up.

        Args:
            number: the unit's number.
            text: the error, as Ray Tune keeps it.
        """
        death, (unit, run) = read_death(text), self._end(number)
        job, machine = unit.job, run.machine
        machine = machine or next((one.id for one in self._machines.machines if one.id in death.ids), "")
        if death.kind == "memory":
            # All that runs on a machine fills its memory. A unit that was alone there has filled it itself.
            alone = all(one.run is None or one.run.machine != machine for one in self._taken.values())
            _change(job, lambda folder: folder.end_for(job.launch_id, "lost", death.line, charged=False, died=alone))
        elif death.kind == "died" and not run.epochs:
            unit.died_on = machine
            self._failed_on(machine, number, death.line)
        of_store = death.kind == "died" and run.began  # the store shows who is at fault
        if run.epochs or of_store:
            unit.deaths.clear()
        unit.deaths[death.kind] += not of_store
        pause = 0.0 if of_store else pause_after(death.kind, unit.deaths[death.kind])
        if pause is None:
            self._ended.append((job, death.line))
            return
        unit.start, self._waiting[number] = self._clock() + pause, unit
        if death.kind != "unfit":
            when = f" in {pause:.0f} s" if pause else ""
            self._observer.note(f"{job.unit.label}: {_WHY[death.kind]}; restarting from the last checkpoints{when}")

    def ask(self) -> None:
        """Ask what can start because of the units that have ended."""
        while self._ended:
            for job in self._observer.finished(*self._ended.pop(0)):
                self._waiting[len(self._jobs)] = _Unit(job)
                self._jobs.append(job)

    def step(self) -> None:
        """Look at the machines.

        Raises:
            DeviceError: every machine of the cluster lacks what the units need.
        """
        now = self._clock()
        if self._list_machines is None or now - self._looked < LOOK_S:
            return
        self._looked = now
        waiting = [unit.avoid for unit in self._taken.values() if unit.run is None]
        running = len(self._taken) - len(waiting)
        large = {one.id for one in self._machines.check(self._list_machines(), running=running)}
        self.is_stuck = not running and bool(large and waiting) and all(large <= avoid for avoid in waiting)

    def _end(self, number: int) -> tuple[_Unit, _Run]:
        """Note that a unit's worker has ended. Returns the unit and the start that ended."""
        unit = self._taken.pop(number)
        run, unit.run = unit.run or _Run(), None
        self._observer.ended(unit.job)
        return unit, run

    def _failed_on(self, machine: str, number: int, reason: str) -> None:
        """Note a failure without an epoch. Of a machine on which all fail, none is charged."""
        for other in self._machines.failed(machine, number, reason) if machine and self._list_machines else ():
            job = self._jobs[other]
            _change(job, partial(TrainingFolder.forgive, launch_id=job.launch_id, node=machine))


def _change(job: UnitJob, change: Callable[[TrainingFolder], object]) -> None:
    """Change the records of a unit, as far as the store lets one: the next launch finds what was cut off."""
    for training in job.unit.trainings:
        with suppress(OSError, DamagedError, GoalError):
            change(Store(job.store).folder(training))
