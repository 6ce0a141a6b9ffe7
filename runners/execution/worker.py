"""What a worker process does with a unit: claim its trainings, train them, and record how each ended."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from goal_core.training import EpochDone, TrainingEvent, TrainingFailed, UnitPlan, train_unit
from runners.store import AlreadyDoneError, LeaseHeldError, LeaseLostError, Store, TrainingFolder, charged_failures
from sweeps import Training, Unit

HUNG = 70
"""Exit status of a worker that its watchdog ended."""
HOPELESS = ("diverged", "collapsed")
"""Kinds of failure that another attempt would repeat with the same numbers."""
STOP_CHECK_S = 1.0
"""Seconds between looks at the store for the driver's wish to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit as it is sent to a worker."""

    unit: Unit
    plan: UnitPlan
    """The same unit in the form that the trainer takes."""
    store: str
    launch_id: str
    max_attempts: Mapping[Training, int]
    """Number of charged attempts allowed for each training, including those of earlier launches."""
    watchdog: int
    """Seconds without a sign of life after which the unit counts as hung; 0 disables the check."""


def run_unit(job: UnitJob, send: Callable[[Sequence[TrainingEvent]], None]) -> None:
    """Run the trainings of a unit that are not done yet.

    When this returns, the store holds how each of them ended. An error of the whole unit (unreadable data, no GPU)
    fails each training and is not raised, because the driver decides whether to try again. If the driver asks its
    workers to stop, every training saves its exact state, and their attempts are left for the driver to end.

    Args:
        job: the unit.
        send: passes events on to the driver.
    """
    asked_to_stop = partial(Store(job.store).drivers.is_asked_to_stop, job.launch_id)
    folders = {} if asked_to_stop() else _claim(job)
    if not folders:
        return
    plan = replace(job.plan, trainings=tuple(one for one in job.plan.trainings if one.key in folders))
    with UnitListener(folders, send, job.watchdog, asked_to_stop) as listener:
        try:
            train_unit(plan, folders, listener)
        except Exception as error:
            left = [key for key in folders if key not in listener.ended]
            listener.events([TrainingFailed.because_of(key, error) for key in left])


def _claim(job: UnitJob) -> dict[str, TrainingFolder]:
    """Claim the unit's trainings that are not done and have an attempt left. Returns their folders by key."""
    store = Store(job.store)
    folders: dict[str, TrainingFolder] = {}
    for training in job.unit.trainings:
        folder = store.folder(training)
        if charged_failures(folder.attempts.all()) >= job.max_attempts[training]:
            continue
        try:
            folder.claim(job.launch_id)
        except (AlreadyDoneError, LeaseHeldError, LeaseLostError):
            continue  # an earlier attempt of this trial finished it, or another launch is training it
        folders[training.key] = folder
    return folders


class UnitListener:
    """Records failures, passes events on, and ends the process when it hangs.

    Args:
        folders: the folders of the unit's trainings, by key.
        send: passes events on to the driver.
        watchdog: seconds without a sign of life after which the process is ended; 0 disables this.
        asked_to_stop: whether the driver wants the unit to save and stop.
    """

    def __init__(
        self,
        folders: Mapping[str, TrainingFolder],
        send: Callable[[Sequence[TrainingEvent]], None],
        watchdog: int,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.ended: set[str] = set()
        """Keys of the trainings that are done or failed."""
        self._folders, self._send, self._limit = folders, send, watchdog
        self._asked_to_stop, self._stopping, self._looked = asked_to_stop, False, time.monotonic()
        self._seen = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="goal-sweep watchdog", daemon=True)

    def __enter__(self) -> UnitListener:
        if self._limit:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()

    def alive(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()

    def stopping(self) -> bool:
        """Whether the driver has asked the unit to save and stop. It looks about once a second."""
        if not self._stopping and time.monotonic() - self._looked >= STOP_CHECK_S:
            self._looked, self._stopping = time.monotonic(), self._asked_to_stop()
        return self._stopping

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Write failures into the store, then send all events to the driver."""
        self._seen = time.monotonic()
        for event in events:
            if isinstance(event, TrainingFailed):
                self._fail(event)
            if not isinstance(event, EpochDone):
                self.ended.add(event.key)
        self._send(events)

    def _fail(self, event: TrainingFailed) -> None:
        folder = self._folders[event.key]
        try:
            # A disk error is not the cell's fault, so it costs the cell no attempt.
            folder.fail(event.reason, event.trace, charged=event.kind != "storage", final=event.kind in HOPELESS)
        except LeaseLostError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that made the cell fail cannot store the failure either; the driver still learns of it.
            os.write(2, f"{event.reason} (and its record could not be written: {error})\n".encode())

    def _watch(self) -> None:
        while not self._over.wait(min(5.0, self._limit / 4)):
            silent = time.monotonic() - self._seen
            if silent < self._limit:
                continue
            try:
                for key, folder in self._folders.items():
                    if key not in self.ended and folder.attempt:
                        _record_hang(folder, f"hung: no step for {silent:.0f} s (resources.watchdog = {self._limit})")
            finally:
                os._exit(HUNG)  # the stuck thread cannot be asked to stop


def _record_hang(folder: TrainingFolder, reason: str) -> None:
    """Fail a training that hangs. If the store refuses, the next claim records the attempt as lost."""
    with contextlib.suppress(OSError, ValueError):
        folder.fail(reason)
    with contextlib.suppress(OSError, ValueError):
        folder.log(reason)
