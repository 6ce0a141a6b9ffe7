"""What a worker does beside training: record failures, pass events on, notice a hang and the wish to stop."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from goal_sweep.goal_core.basics.errors import FencedError
from goal_sweep.goal_core.training import Callback, EpochDone, TrainingEvent, TrainingFailed
from goal_sweep.runners.execution.memory import Chunks
from goal_sweep.runners.store import LeaseLostError, TrainingFolder

HUNG = 70
"""Exit status of a worker that its watchdog ended."""
DEVICE_LOST = 71
"""Exit status of a worker whose GPU refuses everything since an error of one of its cells."""
NOT_RETRIED = ("storage", "refused", "inputs", "crowded")
"""Kinds of failure of a disk, a machine or other units that the same launch does not try again. `crowded`: a GPU that
several units share has no room for this one, and its batches cannot be smaller."""
UNCHARGED = (*NOT_RETRIED, "damaged")
"""Kinds of failure that are not the cell's fault."""
HOPELESS = ("diverged", "collapsed")
"""Kinds of failure that another attempt would repeat with the same numbers."""
STOP_CHECK_S = 1.0
"""Seconds between looks at the store for the driver's wish to stop."""
_RECORD_S = 30.0
"""Seconds that the record of a hang may take."""


class SavedError(Exception):
    """Ends a trial of suspects: they have saved a state, so none of them is what ended the process before."""


class UnitListener(Callback):
    """Records failures, passes events on, shows the driver that the process is alive, and ends it when it hangs.

    Args:
        folders: the folders of the unit's trainings, by key.
        send: passes events on to the driver.
        watchdog: seconds without a step after which the process is ended; 0 disables this.
        asked_to_stop: whether the driver wants the unit to save and stop.
        until_saved: raise `SavedError` after the first epoch of which a state was saved. Trainings that resumed at the
            same position save together; one that is ahead of the others has nothing to show until they reach it.
        chunks: how many pairs the trainings encode at a time; None where that is not known.
        units_per_gpu: how many units share the GPU.
    """

    def __init__(
        self,
        folders: Mapping[str, TrainingFolder],
        send: Callable[[Sequence[TrainingEvent]], None],
        watchdog: int,
        asked_to_stop: Callable[[], bool] = lambda: False,
        *,
        until_saved: bool = False,
        chunks: Chunks | None = None,
        units_per_gpu: int = 1,
    ) -> None:
        self.ended: set[str] = set()
        """Keys of the trainings that are done or failed."""
        self.out_of_memory: set[str] = set()
        """Keys of those that failed for want of memory, and can go on with smaller chunks."""
        self._chunks, self._units_per_gpu = chunks, units_per_gpu
        self._folders, self._send, self._limit, self._until_saved = folders, send, watchdog, until_saved
        self._asked_to_stop, self._stopping, self._asked_at = asked_to_stop, False, time.monotonic()
        self._seen = time.monotonic()
        self._waiting = False
        """Whether the training waits for the driver, which may be suspended."""
        self._over = threading.Event()

    def __enter__(self) -> UnitListener:
        if self._limit:
            threading.Thread(target=self._watch, name="goal-sweep watchdog", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()

    alive = step

    def warned(self, line: str) -> None:
        """Add a line to the log of every training that has not ended."""
        log_to_all({key: folder for key, folder in self._folders.items() if key not in self.ended}, line)

    def stopping(self) -> bool:
        """Whether the driver has asked the unit to save and stop. It looks about once a second."""
        if not self._stopping and time.monotonic() - self._asked_at >= STOP_CHECK_S:
            self._asked_at, self._stopping = time.monotonic(), self._asked_to_stop()
        return self._stopping

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Write failures into the store, then send all events to the driver.

        An error after which the process cannot use its GPU any more ends the process: it would fail every cell, and
        which one caused it shows when they are tried apart.
        """
        self._seen = time.monotonic()
        events = [self._explained(event) for event in events]
        for event in events:
            if isinstance(event, TrainingFailed) and event.kind == "device":
                self._end_process(event.reason, DEVICE_LOST)
            if isinstance(event, TrainingFailed):
                self._fail(event)
            if not isinstance(event, EpochDone):
                self.ended.add(event.key)
        self._waiting = True
        try:
            self._send(events)
        finally:
            self._seen, self._waiting = time.monotonic(), False
        if self._until_saved and any(isinstance(event, EpochDone) for event in events):
            if any(folder.has_progressed() for key, folder in self._folders.items() if key not in self.ended):
                raise SavedError

    def _explained(self, event: TrainingEvent) -> TrainingEvent:
        """The event; of a training for which memory ran out it says how the training goes on."""
        if not isinstance(event, TrainingFailed):
            return event
        if smaller := self._with_smaller(event.kind, event.reason):
            self.out_of_memory.add(event.key)
            return replace(event, reason=smaller)
        if self._units_per_gpu > 1 and event.kind in ("memory", "too_large"):
            why = f"one of {self._units_per_gpu} units on a GPU; a lower execution.units_per_gpu leaves each more"
            return replace(event, kind="crowded", reason=f"out of memory as {why}. {event.reason}")
        return event

    def _with_smaller(self, kind: str, reason: str) -> str:
        """The reason of an end for want of memory after which smaller chunks are tried; empty of any other."""
        smaller = self._chunks.smaller if self._chunks and kind == "memory" else None
        return f"out of memory with {self._chunks}; goes on with {smaller}. {reason}" if smaller else ""

    def _fail(self, event: TrainingFailed) -> None:
        folder = self._folders[event.key]
        try:
            smaller = event.key in self.out_of_memory
            charged, final = event.kind not in UNCHARGED and not smaller, event.kind in HOPELESS
            if smaller:
                folder.log(event.reason)
            folder.fail(event.reason, event.trace, charged=charged, final=final, out_of_memory=smaller)
        except LeaseLostError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that made the cell fail cannot store the failure either; the driver still learns of it.
            os.write(2, f"{event.reason} (and its record could not be written: {error})\n".encode())

    def _watch(self) -> None:
        """End the process when its training hangs."""
        pause, woke = min(5.0, self._limit / 4), time.monotonic()
        while not self._over.wait(pause):
            slept, woke = time.monotonic() - woke, time.monotonic()
            # A process that was suspended (a stopped job, a closed laptop) did not hang, nor does one whose driver is,
            # nor one that waits for the store.
            if slept > 2 * pause + 1 or self._waiting or any(folder.is_waiting for folder in self._folders.values()):
                self._seen = woke
            if woke - self._seen >= self._limit:
                self._end_process(f"hung: no step for {woke - self._seen:.0f} s (resources.watchdog = {self._limit})")

    def _end_process(self, reason: str, status: int = HUNG, *, out_of_memory: bool = False) -> None:
        try:
            # A disk that hangs must not keep the process from ending.
            record = threading.Thread(target=self._record_death, args=[reason, out_of_memory], daemon=True)
            record.start()
            record.join(timeout=_RECORD_S)
        finally:
            os._exit(status)  # the stuck thread cannot be asked to stop

    def _record_death(self, reason: str, out_of_memory: bool) -> None:
        """End the attempts on behalf of their process. If the store refuses, the next worker sees that it died."""
        left = {key: folder for key, folder in self._folders.items() if key not in self.ended and folder.attempt}
        for folder in left.values():
            with contextlib.suppress(OSError, FencedError, ValueError):
                folder.lose(reason, out_of_memory=out_of_memory)
        log_to_all(left, reason)


def log_to_all(folders: Mapping[str, TrainingFolder], line: str) -> None:
    """Add a line to the log of every training, as far as the disk takes it."""
    for folder in folders.values():
        with contextlib.suppress(OSError):
            folder.log(line)
