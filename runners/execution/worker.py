"""What a trial does with a unit, in a worker process: claim its cells, train them, write down how each ended."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from goal_core.training import TrainingEvent, TrainingFailed, UnitPlan, train_unit
from runners.store.heartbeat import LeaseHeldError
from runners.store.lease import LeaseLostError
from runners.store.store import Store
from runners.store.training_folder import AlreadyDoneError, TrainingFolder, charged_failures

HUNG = 70
"""Exit status of a worker that its own watchdog ended."""
HOPELESS = ("diverged", "collapsed")
"""Kinds of failure that another attempt would only repeat, number by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit on its way to a worker."""

    label: str
    plan: UnitPlan
    stage_keys: Mapping[str, str]
    """Stage key of each cell id."""
    store: str
    launch_id: str
    max_attempts: Mapping[str, int]
    """Charged attempts that each cell id may use up, those of earlier launches included."""
    watchdog: int
    """Seconds without a sign of life after which the unit counts as hung; 0 never."""


def run_unit(job: UnitJob, send: Callable[[Sequence[TrainingEvent]], None]) -> None:
    """Train a unit's cells that are still to be trained.

    How each cell ended is in the store when this returns. An error that concerns the whole unit (data that cannot be
    read, no GPU) fails each of its cells and does not escape: trying again is the driver's decision.

    Args:
        job: the unit.
        send: passes events on to the driver.
    """
    folders = _claim(job)
    if not folders:
        return
    plan = replace(job.plan, cells=tuple(cell for cell in job.plan.cells if cell.cell_id in folders))
    listener = _Listener(folders, send, job.watchdog)
    with listener:
        try:
            train_unit(plan, folders, listener)
        except Exception as error:
            failures = [
                TrainingFailed(
                    cell_id=cell_id,
                    stage=plan.stage.name,
                    kind="error",
                    reason=" ".join(str(error).split()) or type(error).__name__,
                    trace=traceback.format_exc(),
                )
                for cell_id in folders
                if cell_id not in listener.ended
            ]
            listener.events(failures)


def _claim(job: UnitJob) -> dict[str, TrainingFolder]:
    """The folders of the unit's cells that nobody has finished and that have an attempt left."""
    store = Store(job.store)
    folders: dict[str, TrainingFolder] = {}
    for cell in job.plan.cells:
        folder = store.stage_folder(cell.cell_id, job.plan.stage.name, job.stage_keys[cell.cell_id])
        if charged_failures(folder.attempts.all()) >= job.max_attempts[cell.cell_id]:
            continue
        try:
            folder.claim(job.launch_id)
        except (AlreadyDoneError, LeaseHeldError, LeaseLostError):
            continue  # an earlier attempt of this trial finished it, or another launch has it
        folders[cell.cell_id] = folder
    return folders


class _Listener:
    """Writes failures down, passes events on, and ends the process when nothing moves."""

    def __init__(
        self, folders: Mapping[str, TrainingFolder], send: Callable[[Sequence[TrainingEvent]], None], watchdog: int
    ) -> None:
        self.ended: set[str] = set()
        self._folders, self._send, self._limit = folders, send, watchdog
        self._seen = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="goal-sweep watchdog", daemon=True)

    def __enter__(self) -> _Listener:
        if self._limit:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self, done: int, total: int) -> None:
        self._seen = time.monotonic()

    def alive(self) -> None:
        self._seen = time.monotonic()

    def events(self, events: Sequence[TrainingEvent]) -> None:
        self._seen = time.monotonic()
        for event in events:
            if isinstance(event, TrainingFailed):
                self._fail(event)
        self._send(events)

    def _fail(self, event: TrainingFailed) -> None:
        self.ended.add(event.cell_id)
        folder = self._folders[event.cell_id]
        try:
            # A disk that refuses is no fault of the cell, so it costs the cell no attempt.
            folder.fail(event.reason, event.trace, charged=event.kind != "storage", final=event.kind in HOPELESS)
        except LeaseLostError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that failed the cell refuses its obituary too; the driver still hears of it.
            folder_line = f"{event.reason} (and its record could not be written: {error})"
            os.write(2, f"{folder_line}\n".encode())

    def _watch(self) -> None:
        while not self._over.wait(min(5.0, self._limit / 4)):
            silent = time.monotonic() - self._seen
            if silent < self._limit:
                continue
            for cell_id, folder in self._folders.items():
                if cell_id not in self.ended and folder.attempt:
                    folder.log(f"no step for {silent:.0f} s: hung")
                    self._fail_quietly(folder, silent)
            os._exit(HUNG)  # the stuck thread cannot be asked to stop

    def _fail_quietly(self, folder: TrainingFolder, silent: float) -> None:
        try:
            folder.fail(f"hung: no step for {silent:.0f} s (resources.watchdog = {self._limit})")
        except (LeaseLostError, OSError, ValueError):
            return  # the process ends either way; the next claim records the attempt as lost
