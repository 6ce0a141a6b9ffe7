"""`goal-sweep launch`: have Ray train what a sweep lacks, and tell the view and the trackers what becomes of it.

How a training ended is read from the store: in `Launch._settle`, or in `_release` as the launch ends. What workers
report only wakes the view.
"""

import itertools
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.training.plan import EpochDone, TrainingDone, TrainingFailed
from goal_sweep.runners.execution.job import CODE_DIGEST, Death, Start, UnitJob, software
from goal_sweep.runners.execution.session import RaySession
from goal_sweep.runners.launch.remaining import Packer, Remaining
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view import LiveView
from goal_sweep.runners.planning.devices import of_machines
from goal_sweep.runners.results import training_row
from goal_sweep.runners.tracking.tracking import Tracking
from goal_sweep.sweeps import Training, Unit

MOST_DEATHS, MOST_DAMAGES = 8, 3
"""How often in a row a unit's workers may die without progress and through no fault of its cells, and how often a file
that a training starts from may be damaged; then this launch leaves it."""
PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause before a unit starts again; it doubles with each such death."""
SAVE_S = 20.0
"""Seconds that the running units get to save their cells after a signal."""
LOOK_S = 5.0
"""Seconds between looks at what other launches train, while there is nothing else to do."""
ANSWER_S = 20.0
"""Seconds that MLflow may take to answer before anything trains; one that does not is caught up with later."""


@dataclass(slots=True, eq=False)
class _Waiting:
    unit: Unit
    rank: tuple[float, ...]
    ready_at: float = 0.0
    deaths: int = 0
    """Of its workers in a row, without progress and through no fault of its cells."""
    node: str = ""
    """Ray's id of the machine that trains it."""
    unfit: str = ""
    """What that machine lacks, if it has said so."""


class Launch:
    """Gives units to Ray, and notes what becomes of them (`runners.execution.job.Work`)."""

    def __init__(
        self, remaining: Remaining, session: RaySession, view: LiveView, tracking: Tracking, signals: StopSignals
    ) -> None:
        self._remaining, self._progress, self._session = remaining, remaining.progress, session
        self._view, self._tracking, self._signals = view, tracking, signals
        self._store = remaining.sweep.store
        self.id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{secrets.token_hex(4)}"
        """Which the attempts of its workers state."""
        self._queue: list[_Waiting] = []
        self._starts: dict[int, _Waiting] = {}
        self._numbers = itertools.count()
        self._begun: set[Training] = set()
        """Trainings that workers of this launch have claimed."""
        self._damages: Counter[Training] = Counter()
        self._unfit: dict[str, str] = {}
        """Machines that lack what the units need, by Ray's id, and what."""
        self._cut_short = ""
        """Why the launch cannot go on; empty while it can."""
        self._failed_fast = False
        self._saved_by: float | None = None
        """When the running units have had their time to save; None until a signal comes."""
        self._looked = 0.0
        self._packer: Packer | None = None

    def run(self) -> int:
        """Train, and return the exit status; see `launch_sweep`."""
        self._store.begin_launch(self.id)
        try:
            with self._view:
                if not self._remaining.startable() and (held := self._remaining.held):
                    others = f"{len(held)} trainings are being done by {self._progress[held[0]].holder}"
                    self._view.note(f"{others}; this launch trains what is left")
                self._train()
        except KeyboardInterrupt:  # a second signal, or one that came while no unit was running
            if self._signals.received is None:
                raise
        finally:
            for waiting in self._starts.values():
                self._release([one for one in waiting.unit.trainings if self._progress[one].state != "done"])
            self._store.end_launch(self.id)
        if self._signals.received is not None:
            self._view.note(f"{self._signals.cause}: the same command continues from the saved states")
            return self._signals.status
        if self._cut_short:
            raise UnfinishedError(self._cut_short)
        if self._failed_fast:
            self._view.note("stopped at the first failure (--fail-fast)")
        return self._remaining.exit_status

    def _train(self) -> None:
        from goal_sweep.runners.execution.units import run_units  # loads Ray, which reads the session's variables

        with closing(self._session) as session:
            self._tracking.mlflow.check(ANSWER_S)  # before anything trains, if it can never work
            devices = of_machines(session.machines(), session.need, here=session.address is None)
            self._packer = Packer(self._remaining, devices, self._view.note)
            self._packer.look_ahead()
            self._fill()
            with self._signals.gentle():
                run_units(session, self, devices.count)

    # Called by the execution, as `Work` says.

    @property
    def is_over(self) -> bool:
        return not (self._queue or self._starts or self._remaining.held)

    @property
    def stopping(self) -> bool:
        """Whether all units should end now. After a signal they should when they have saved, or had their time."""
        has_saved = self._saved_by is not None and (not self._starts or time.monotonic() > self._saved_by)
        return self._failed_fast or bool(self._cut_short) or has_saved

    def next(self) -> Start | None:
        now = time.monotonic()
        ready = [one for one in self._queue if one.ready_at <= now]
        if not ready or self._signals.received is not None:
            return None
        waiting = min(ready, key=lambda one: one.rank)
        self._queue.remove(waiting)
        self._starts[number := next(self._numbers)] = waiting
        config = self._remaining.sweep.config
        job = UnitJob(
            unit=waiting.unit,
            execution=config.execution,
            resources=config.resources,
            plugins=tuple(one for one in config.plugins if one.kinds != {"trackers"}),
            store=self._store.location,
            launch=self.id,
            elsewhere=self._session.address is not None,
            code=CODE_DIGEST,
            software=software(),
        )
        return Start(number, job, tuple(self._unfit))

    def reported(self, number: int, report: Mapping[str, Any]) -> None:
        if (waiting := self._starts.get(number)) is None:  # the report of a worker that was given up
            return
        own = {training.key: training for training in waiting.unit.trainings}
        waiting.node, waiting.unfit = report["node"], report.get("unfit", "")
        for key in report.get("claimed", ()):
            self._begun.add(own[key])
            self._progress.running(own[key])
            self._tracking.begin(own[key])
        for event in report["events"]:
            match event:
                case EpochDone(key=key, record=record):
                    waiting.deaths, rsum = 0, record["metrics"].get("val/rsum", math.nan)
                    self._progress.running(own[key], record["epoch"], rsum)
                    self._tracking.epoch(key, record)
                    self._view.epoch(own[key], rsum)
                case TrainingDone(key=key):
                    self._settle(own[key])
                case TrainingFailed(key=key, kind=kind, reason=reason):
                    self._failed(own[key], kind, reason)

    def ended(self, number: int, death: Death | None) -> None:
        waiting = self._starts.pop(number)
        self._remaining.under_way.difference_update(waiting.unit.trainings)
        unended = [one for one in waiting.unit.trainings if self._progress[one].state in ("waiting", "running")]
        left = [one for one in unended if one not in self._remaining.left]
        if self._signals.received is not None or self.stopping:
            self._release(left)
            return
        if waiting.unfit:
            self._avoid(waiting, left)
        elif death is not None:
            self._died(waiting, left, death)
        else:
            for training in left:
                self._settle(training)
        self._fill()

    def step(self) -> None:
        """Look for a signal, and ask the running units to save after the first. Ray may have replaced its handler."""
        self._signals.install()
        if self._signals.received is not None and self._saved_by is None:
            self._saved_by = time.monotonic() + SAVE_S
            self._view.note(f"{self._signals.cause}: the running cells save their state; a second signal stops at once")
            try:
                self._store.ask_to_stop(self.id)
            except StorageError as error:
                self._saved_by = time.monotonic()
                self._view.note(f"the running cells cannot be asked to save: {error}")
        elif not (self._queue or self._starts) and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            for training in self._remaining.held:
                self._settle(training)
            self._fill()

    def _fill(self) -> None:
        """Queue what can start now; where a search waits for nothing else, what it proposes next."""
        if self._packer is None or self._signals.received is not None:
            return
        chosen = self._remaining.startable()
        if not chosen and self.is_over and self._remaining.search_on():
            self._view.note(self._progress.phase)
            self._packer.look_ahead()
            chosen = self._remaining.startable()
        self._queue += [_Waiting(unit, rank) for rank, unit in self._packer.units(chosen)]
        self._remaining.under_way.update(chosen)

    # What becomes of trainings.

    def _settle(self, training: Training) -> None:
        """Read from the store how a training ended, and tell it."""
        before = self._progress[training].state
        try:
            status = self._remaining.read([training])[training]
            row = training_row(self._store, training, status) if status.state in ("done", "failed") else None
        except UnfinishedError as error:
            self._cut_short = str(error)
            return
        except (OSError, DamagedError) as error:
            self._leave(training, f"storage: {error}")
            return
        self._progress.set(training, status)
        if row is not None and status.state != before:
            (self._view.done if status.state == "done" else self._view.failed)(training)
            if training in self._begun:  # or else the launch that trained it tells
                self._tracking.end(row)
            self._failed_fast |= status.state == "failed" and self._remaining.options.fail_fast
        elif status.state == "waiting" and not self._store.exists:
            where = f"the results folder {self._store.location} is gone, or another is in its place"
            self._cut_short = f"{where}; once it is back, the same command continues"

    def _failed(self, training: Training, kind: str, reason: str) -> None:
        self._damages[training] += kind == "damaged"
        if kind in ("storage", "inputs") or self._damages[training] > MOST_DAMAGES:
            self._leave(training, reason)
            return
        self._view.note(f"{training.name}: {reason}")
        if kind == "refused":
            self._cut_short = reason
        else:
            if kind == "damaged" and training.before is not None and self._progress[training.before].state == "done":
                with suppress(OSError):
                    self._store.folder(training.before).forget_result(reason)
                self._settle(training.before)
            self._settle(training)

    def _leave(self, training: Training, reason: str) -> None:
        """Leave a training to the next launch, when the disk may have room: this one would only fail again."""
        self._remaining.left.add(training)
        reason = f"{reason}; not counted: once that is mended, the same command continues"
        self._progress.waiting(training, reason)
        self._view.note(f"{training.name}: {reason}")
        self._failed_fast |= self._remaining.options.fail_fast

    def _avoid(self, waiting: _Waiting, left: Sequence[Training]) -> None:
        """Keep units away from a machine that lacks something, as long as there are others."""
        self._unfit[waiting.node] = waiting.unfit
        if all(one.id in self._unfit for one in self._session.machines() if one.fits(self._session.need)):
            self._cut_short = f"no machine of the cluster can train this sweep: {'; '.join({*self._unfit.values()})}"
        self._view.note(waiting.unfit)
        self._again(waiting, left, pause_s=0.0)

    def _died(self, waiting: _Waiting, left: Sequence[Training], death: Death) -> None:
        """A worker died. At most one of its cells is at fault, and the store shows whether any had saved a state.

        Without one, the unit goes on in halves, so that the cell at fault is found, and where memory was short, less
        is needed. A cell that dies alone is counted. The end of a machine is nobody's fault.
        """
        folders = {training: self._store.folder(training) for training in left}
        reason, progressed, claimed = "its worker process died", False, list[Training]()
        with suppress(OSError):
            for training, folder in folders.items():
                newest = folder.attempts.newest()
                if newest is not None and newest.launch == self.id and newest.outcome in ("running", "lost"):
                    claimed.append(training)
                    progressed |= folder.progressed(newest)
                    reason = newest.reason or reason
        at_fault = death.kind == "died" and len(claimed) == len(left) == 1 and not progressed
        for training in claimed:
            with suppress(OSError, DamagedError):  # the next launch finds that the attempt was cut off
                folders[training].end_for(self.id, "failed" if at_fault else "lost", reason, counted=at_fault)
        for training in left:
            self._settle(training)
        again = [training for training in left if self._progress[training].state == "waiting"]
        if not again:
            return
        self._view.note(f"{waiting.unit.label}: {reason}: {death.line}; it goes on from the last saved states")
        waiting.deaths = 0 if progressed or at_fault else waiting.deaths + 1
        if waiting.deaths >= MOST_DEATHS:
            for training in again:
                self._leave(training, f"its workers died {waiting.deaths} times in a row: {death.line}")
        elif claimed and len(again) > 1 and not progressed and death.kind != "machine":
            middle = -(-len(again) // 2)
            for half in (again[:middle], again[middle:]):
                self._again(waiting, half, pause_s=0.0)
        else:
            pause_s = min(PAUSE_S * 2**waiting.deaths, LONGEST_PAUSE_S) if waiting.deaths else 0.0
            self._again(waiting, again, pause_s=pause_s)

    def _again(self, waiting: _Waiting, trainings: Sequence[Training], *, pause_s: float) -> None:
        """Let what is left of a unit wait for another start."""
        for training in trainings:
            self._progress.waiting(training)
        if trainings:
            unit, ready_at = Unit(trainings=tuple(trainings)), time.monotonic() + pause_s
            self._queue.append(_Waiting(unit, waiting.rank, ready_at, waiting.deaths))
            self._remaining.under_way.update(trainings)

    def _release(self, trainings: Sequence[Training]) -> None:
        """Note that trainings wait for the next launch; end the attempts of workers that had no time to."""
        cause = self._signals.cause if self._signals.received is not None else "its launch ended"
        for training in trainings:
            self._progress.waiting(training, cause)
            folder = self._store.folder(training)
            with suppress(OSError, DamagedError, UnfinishedError):
                folder.end_for(self.id, "interrupted", cause)
                status = self._remaining.read([training])[training]
                self._progress.set(training, status)
                if training in self._begun:
                    self._tracking.end(training_row(self._store, training, status))
