"""Carries out a launch: starts its units, and notes in the store, the view and MLflow what becomes of them."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.ray_tune import RayUnits
from goal_sweep.runners.execution.session.session import RayLostError
from goal_sweep.runners.execution.session.supervisor import force_is_done
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_listener import HOPELESS, NOT_RETRIED
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from goal_sweep.runners.launch.remaining.units import UnitQueue
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view.live import LiveView
from goal_sweep.runners.launch.view.progress import Pace
from goal_sweep.runners.planning.devices import of_machines
from goal_sweep.runners.planning.speeds import Speeds
from goal_sweep.runners.tracking.sync import SweepTracking
from goal_sweep.runners.tracking.trackers import Trackers
from goal_sweep.sweeps import Training

MAX_DAMAGES = 3
"""Times that a launch trains a training again because a file of it was damaged."""
SAVE_S = 20.0
"""Seconds that the running units get to save their cells after a signal."""
CATCH_UP_S, HURRY_S = 60.0, 5.0
"""Seconds that tracking may take to catch up at the end of a launch, and of one that has to end soon."""


class LaunchRay(ExitStack):
    """The session of Ray of all parts of one launch: the first part that trains starts it."""

    launch_id = ""
    """The id of the part that trains now."""
    _units: RayUnits | None = None

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()
        """When the first part began."""
        self.pace = Pace()
        """The speed of the newest part."""

    def units(self, make: Callable[[], RayUnits]) -> RayUnits:
        """The session, which `make` makes unless there is one."""
        self._units = self._units or self.enter_context(make())
        return self._units

    def close(self) -> None:
        """Leave the session. A further part would start another."""
        self._units = None
        super().close()


def finish(view: LiveView, tracking: SweepTracking, *, patient: bool = True) -> None:
    """Bring tracking up to date, and show the state of the sweep."""
    tracking.sync_all(wait=CATCH_UP_S, patient=patient)
    if tracking.trouble:
        tracking.limit(0)  # it had its time
        view.note(f"tracking: {tracking.trouble} ({view.command('sync', with_tracking=True)} brings it up to date)")
    view.show_all()


class Launcher:
    """Carries out a launch plan and observes its units.

    Args:
        sweep: the sweep.
        options: the options of this launch.
        plan: what to train.
        view: shows the progress.
        tracking: writes the progress to MLflow.
        launch_id: the id that claims the attempts of this launch.
        signals: handles the signals that stop the launch; it must be entered already.
        speeds: of the sweep's trainings; None packs as many cells into a unit as can share one.
        ray: keeps Ray for further parts of the launch; None where there are none.
    """

    def __init__(
        self,
        sweep: OpenedSweep,
        options: LaunchOptions,
        plan: LaunchPlan,
        view: LiveView,
        tracking: SweepTracking,
        launch_id: str,
        signals: StopSignals | None = None,
        speeds: Callable[[], Speeds] | None = None,
        ray: LaunchRay | None = None,
    ) -> None:
        self._speeds, self._ray = speeds, ray or LaunchRay()
        self._sweep, self._options, self._plan, self._view = sweep, options, plan, view
        self._tracking, self._launch_id = tracking, launch_id
        self._trackers = Trackers(sweep, view.note)
        self._progress = plan.progress
        self._trainings = {training.key: training for training in sweep.trainings}
        self._damages: Counter[Training] = Counter()
        """How often a file of a training was found damaged."""
        self._failed_fast = False
        """Whether a training failed and the launch should not go on."""
        self._cut_short = ""
        """Why the store cannot be used any more: it is gone, or refuses the credentials; empty while it can."""
        self._store_id = sweep.store.id
        self._signals = signals or StopSignals()
        self._saved_by: float | None = None
        """When the running units have had their time to save; None until a signal comes."""
        self._queue = UnitQueue(sweep, plan, launch_id, view.note, self._refused)

    @property
    def stopping(self) -> bool:
        """Whether all units should stop now. After a signal they should when they have saved, or had their time."""
        idle = not self._progress.pace.has_units
        has_saved = self._saved_by is not None and (idle or time.monotonic() > self._saved_by)
        return self._failed_fast or bool(self._cut_short) or has_saved

    def run(self) -> int:
        """Train, and return the exit status.

        Raises:
            UnfinishedError: Ray has no machine left, the store is gone, or the credentials for it have expired.
        """
        if repeated := self._plan.set_aside_repeated():
            force_is_done()
            self._view.note(
                f"--force: {repeated} finished trainings start over; their results are kept in folders that end in "
                ".replaced-N. To continue after a stop, launch without --force"
            )
        try:
            self._train()
            if self._cut_short:
                raise UnfinishedError(self._cut_short)
        except UnfinishedError as error:
            if self._signals.received is None:
                self._end_running("Ray died" if isinstance(error, RayLostError) else "its store cannot be used")
                raise
        except KeyboardInterrupt:  # a second signal, or one that came while no unit was running
            if self._signals.received is None:
                raise
        finally:
            self._trackers.close(CATCH_UP_S if self._signals.received is None else HURRY_S)
        if self._signals.received is not None:
            return self._stopped()
        if self._failed_fast:
            self._end_running("another training failed (--fail-fast)")
            self._view.note("stopped at the first failure (--fail-fast)")
        if self._sweep.is_searching:
            self._tracking.sync_all()
        else:
            finish(self._view, self._tracking)
        if self._options.share is not None:
            left = len(self._plan.of_others)
            self._view.note(f"{left} trainings are left to the other launches; MLflow is left to goal-sweep sync")
        return self._plan.exit_status

    def _stopped(self) -> int:
        self._tracking.limit(HURRY_S)
        self._end_running(self._signals.cause)
        again = "the same command without --force" if self._options.force else "the same command"
        self._view.note(f"{self._signals.cause}: {again} continues from the saved states")
        finish(self._view, self._tracking, patient=False)
        return self._signals.status

    def _train(self) -> None:
        needs = Resources.of(self._sweep.config.resources)
        kept, bury, options = self._ray, self._sweep.store.drivers.bury, self._options
        kept.launch_id = self._launch_id

        def make() -> RayUnits:
            return RayUnits(options.address, needs, lambda: bury(kept.launch_id), grows=options.devices > 0)

        with self._view, ExitStack() as leaving:
            leaving.callback(kept.close)
            ray = kept.units(make)
            self._signals.install()
            # MLflow opened while Ray started. If it cannot be used at all, this raises before anything trains.
            # If it does not answer, it will catch up.
            self._tracking.wait_open()
            if damaged := self._plan.set_aside_found(self._refused):
                self._view.note(f"files of {damaged} finished trainings are damaged; these are trained again")
            if self._speeds is not None:
                devices = of_machines(ray.machines(), needs, here=options.address is None)
                devices = replace(devices, count=max(devices.count, options.devices))
                self._queue.fit_to(devices, replace(self._speeds(), gpu=devices.gpu))
                self._progress.pace.remember(kept.pace)
                kept.pace = self._progress.pace
            leaving.callback(gc.unfreeze)
            while not self._is_over() and (jobs := self._queue.round()):
                gc.freeze()  # a search for garbage would visit thousands of trainings, half a second each time
                with self._signals.gentle():
                    ray.run(jobs, self)
                # Tune has reported most ends already, but it may have lost some with the machines that it used.
                for training in () if self._is_over() else self._queue.under_way:
                    self._settle(training)
            if self._sweep.is_searching:  # then another part may follow
                leaving.pop_all()

    def _is_over(self) -> bool:
        return self._failed_fast or bool(self._cut_short) or self._signals.received is not None

    def _settle(self, training: Training, error: str = "") -> None:
        """Read from the store how a training ended, because a lost worker may have lost events too.

        Those evicted from a shared unit that have attempts left, and those whose worker was lost, wait again.

        Args:
            training: the training.
            error: the last error line, where workers died again and again.

        Raises:
            UnfinishedError: the store is gone, and its trainings with it.
        """
        store, tried = self._sweep.store, self._queue.take_back(training)
        # The workers have charged the cells that are at fault. One that died before it began is no cell's fault.
        reason = f"its workers died: {error}" if error else "its worker died"
        try:
            store.folder(training).end_for(self._launch_id, "lost", reason, charged=False)
        except (OSError, DamagedError) as problem:
            self._refused(training, problem)
            return
        allowed = self._sweep.config.resources.max_attempts + self._plan.forgiven.get(training, 0)
        status = store.status([training], max_attempts=allowed)[training]
        if status.state == "done":
            self._done(training, status.result)
        elif status.state == "failed":
            self._failed(training, status.reason)
        elif not tried and store.id != self._store_id:
            where = f"the results folder {store.location} is gone, or another is in its place"
            raise UnfinishedError(f"{where}; once it is back, the same command continues")
        elif not tried or training in self._plan.left:
            self._leave(training, (reason if error else status.reason) or "no worker started it")
        else:
            self._progress.waiting(training)

    # Called by the execution with what the units report.

    def started(self, job: UnitJob) -> None:
        """Note that a worker has begun a unit."""
        for training in job.unit.trainings:
            self._progress.running(training)
            self._tracking.sync(training)
            self._trackers.begin(training)
        self._progress.pace.begin(job.unit, min(self._progress[one].epochs for one in job.unit.trainings))

    def ended(self, job: UnitJob) -> None:
        """Note that a unit's worker has ended."""
        self._progress.pace.end(job.unit)

    def finished(self, job: UnitJob, error: str = "") -> Sequence[UnitJob]:
        """Note how the trainings of a unit ended. Returns the units that can start because of that."""
        if error:  # what is left of it may be tried again
            self._view.note(f"{job.unit.label}: given up for now: {error}")
        for training in () if self._is_over() else job.unit.trainings:
            try:
                self._settle(training, error)
            except UnfinishedError as expired:
                self._cut_short = str(expired)
        return () if self._is_over() else self._queue.after(job.unit, damaged=self._damages.keys())

    def step(self) -> None:
        """Look for a signal, and ask the running units to save after the first. Ray may have replaced its handler."""
        self._signals.install()
        if self._signals.received is None or self._saved_by is not None:
            return
        self._saved_by = time.monotonic() + SAVE_S
        self._view.note(f"{self._signals.cause}: the running cells save their state; a second signal stops at once")
        try:
            self._sweep.store.drivers.ask_to_stop(self._launch_id)
        except StorageError as error:
            self._saved_by = time.monotonic()
            self._view.note(f"the running cells cannot be asked to save: {error}")

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Process what happened to the trainings of a unit."""
        # The cells of a unit report an epoch together. Each line's time left counts the epochs of all of them.
        for event in events:
            if isinstance(event, EpochDone):
                self._progress.epoch_done(self._trainings[event.key], event.record["epoch"], event.record["metrics"])
        for event in events:
            training = self._trainings[event.key]
            match event:
                case EpochDone(record=record):
                    self._trackers.epoch(training, record["epoch"], record["metrics"])
                    self._view.epoch(training, record["metrics"].get("val/rsum", math.nan))
                    self._tracking.sync(training)
                case TrainingDone(result=result):
                    self._done(training, result)
                case TrainingFailed(kind=kind, reason=reason):
                    self._evicted(training, kind, reason)

    def note(self, line: str) -> None:
        """Show a line to the user."""
        self._view.note(line)

    def _evicted(self, training: Training, kind: str, reason: str) -> None:
        if self._progress[training].state == "done":
            return
        if kind == "refused":
            self._cut_short = reason
            self._progress.waiting(training)
            return
        self._damages[training] += kind == "damaged"
        if kind in NOT_RETRIED or self._damages[training] > MAX_DAMAGES:
            self._leave(training, reason)
        elif kind in HOPELESS:
            self._failed(training, reason)
        elif training not in self._plan.left:
            self._progress.waiting(training)
            self._view.note(f"{training.name}: {reason}")

    def _done(self, training: Training, result: Mapping[str, Any]) -> None:
        if self._progress[training].state != "done":
            self._progress.done(training, result)
            self._trackers.end(training, "done", result["metrics"])
            self._view.done(training)
        self._tracking.sync(training)

    def _failed(self, training: Training, reason: str) -> None:
        if self._progress[training].state != "failed":
            self._progress.failed(training, reason)
            self._trackers.end(training, "failed", {})
            self._view.failed(training)
        self._tracking.sync(training)
        self._failed_fast |= self._options.fail_fast

    def _leave(self, training: Training, reason: str) -> None:
        """Leave a training to the next launch, when the disk may have room: this one would only fail again."""
        if training not in self._plan.left:
            self._plan.left.add(training)
            reason = f"{reason}; not charged: once that is mended, the same command continues"
            self._progress.waiting(training, reason)
            self._view.note(f"{training.name}: {reason}")
        self._tracking.sync(training)
        self._failed_fast |= self._options.fail_fast

    def _refused(self, training: Training, error: Exception) -> None:
        """Leave a training, because its files cannot be used. The others go on, if they can."""
        if isinstance(error, UnfinishedError):
            self._cut_short = str(error)
            return
        self._leave(training, f"storage: {error}")

    def _end_running(self, reason: str) -> None:
        for training in self._sweep.trainings:
            if self._progress[training].state == "running":
                folder = self._sweep.store.folder(training)
                with suppress(OSError, DamagedError):  # the next launch finds that the attempt was cut off
                    folder.end_for(self._launch_id, "interrupted", reason, charged=False)
                self._progress.waiting(training)
