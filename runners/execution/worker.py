"""What a trial does with a unit, in a worker process: claim its trainings, do them, write down how each ended."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from goal_core.training import TrainingEvent, TrainingFailed, UnitPlan, train_unit
from runners.store import AlreadyDoneError, LeaseHeldError, LeaseLostError, Store, TrainingFolder, charged_failures
from sweeps import Training, Unit

HUNG = 70
"""Exit status of a worker that its own watchdog ended."""
HOPELESS = ("diverged", "collapsed")
"""Kinds of failure that another attempt would only repeat, number by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit on its way to a worker."""

    unit: Unit
    plan: UnitPlan
    """The same as the trainer takes it."""
    store: str
    launch_id: str
    max_attempts: Mapping[Training, int]
    """Charged attempts that each training may use up, those of earlier launches included."""
    watchdog: int
    """Seconds without a sign of life after which the unit counts as hung; 0 never."""


def run_unit(job: UnitJob, send: Callable[[Sequence[TrainingEvent]], None]) -> None:
    """Do a unit's trainings that are still to be done.

    How each ended is in the store when this returns. An error that concerns the whole unit (data that cannot be read,
    no GPU) fails each of its trainings and does not escape: trying again is the driver's decision.

    Args:
        job: the unit.
        send: passes events on to the driver.
    """
    folders = _claim(job)
    if not folders:
        return
    plan = replace(job.plan, trainings=tuple(one for one in job.plan.trainings if one.key in folders))
    with UnitListener(folders, send, job.watchdog) as listener:
        try:
            train_unit(plan, folders, listener)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            trace = traceback.format_exc()
            left = [key for key in folders if key not in listener.ended]
            listener.events([TrainingFailed(key=key, kind="error", reason=reason, trace=trace) for key in left])


def _claim(job: UnitJob) -> dict[str, TrainingFolder]:
    """The folders, by key, of the unit's trainings that nobody has finished and that have an attempt left."""
    store = Store(job.store)
    folders: dict[str, TrainingFolder] = {}
    for training in job.unit.trainings:
        folder = store.folder(training)
        if charged_failures(folder.attempts.all()) >= job.max_attempts[training]:
            continue
        try:
            folder.claim(job.launch_id)
        except (AlreadyDoneError, LeaseHeldError, LeaseLostError):
            continue  # an earlier attempt of this trial finished it, or another launch has it
        folders[training.key] = folder
    return folders


class UnitListener:
    """Writes failures down, passes events on, and ends the process when nothing moves.

    Args:
        folders: the unit's, by key.
        send: passes events on to the driver.
        watchdog: seconds without a sign of life; 0 never ends the process.
    """

    def __init__(
        self, folders: Mapping[str, TrainingFolder], send: Callable[[Sequence[TrainingEvent]], None], watchdog: int
    ) -> None:
        self.ended: set[str] = set()
        """Keys of the trainings that failed."""
        self._folders, self._send, self._limit = folders, send, watchdog
        self._seen = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="goal-sweep watchdog", daemon=True)

    def __enter__(self) -> UnitListener:
        if self._limit:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self, done: int, total: int) -> None:
        """A sign of life."""
        self._seen = time.monotonic()

    def alive(self) -> None:
        """A sign of life."""
        self._seen = time.monotonic()

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Write failures into the store, then tell the driver of everything."""
        self._seen = time.monotonic()
        for event in events:
            if isinstance(event, TrainingFailed):
                self._fail(event)
        self._send(events)

    def _fail(self, event: TrainingFailed) -> None:
        self.ended.add(event.key)
        folder = self._folders[event.key]
        try:
            # A disk that refuses is no fault of the cell, so it costs the cell no attempt.
            folder.fail(event.reason, event.trace, charged=event.kind != "storage", final=event.kind in HOPELESS)
        except LeaseLostError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that failed the cell refuses its obituary too; the driver still hears of it.
            os.write(2, f"{event.reason} (and its record could not be written: {error})\n".encode())

    def _watch(self) -> None:
        while not self._over.wait(min(5.0, self._limit / 4)):
            silent = time.monotonic() - self._seen
            if silent < self._limit:
                continue
            for key, folder in self._folders.items():
                if key not in self.ended and folder.attempt:
                    folder.log(f"no step for {silent:.0f} s: hung")
                    self._fail_quietly(folder, silent)
            os._exit(HUNG)  # the stuck thread cannot be asked to stop

    def _fail_quietly(self, folder: TrainingFolder, silent: float) -> None:
        try:
            folder.fail(f"hung: no step for {silent:.0f} s (resources.watchdog = {self._limit})")
        except (LeaseLostError, OSError, ValueError):
            return  # the process ends either way; the next claim records the attempt as lost
