"""Stopping a launch: SIGTERM, SIGUSR1 and Ctrl-C let the cells save first, and a second signal stops it at once.

Batch systems send SIGTERM before they take a machine away, and SIGUSR1 some time before the end if they are asked to.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from goal_core.basics.atomic import StorageError
from goal_core.basics.errors import UnfinishedError
from runners.execution.session.watch import end_process

if TYPE_CHECKING:  # a launch handles signals before it spends seconds on loading torch
    from runners.execution.unit_line import UnitJob
    from runners.store import Store

STOPPED, INTERRUPTED = UnfinishedError.status, 130
"""Exit status of a launch that a batch system stopped, and of one that the user interrupted."""
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
SAVE_S = 20.0
"""Seconds that the running units get to save their cells."""
REPEAT_S = 1.0
"""A signal this soon after another is the same wish: some senders signal a process and then its whole group."""


class StopSignals:
    """Handles the signals that end a launch. A context manager, for the main thread.

    Outside of `gentle` and `loading` a signal raises `KeyboardInterrupt`, which is also what Ray's calls raise for any
    signal. Within `gentle` the first signal only sets `received`.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal received; None before."""
        self._first = 0.0
        self._gentle = self._loading = False
        self._previous: Mapping[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Put the handlers in place again, because Ray and Tune install their own."""
        for number in _SIGNALS:
            if signal.getsignal(number) != self._handle:
                signal.signal(number, self._handle)

    @contextmanager
    def gentle(self) -> Iterator[None]:
        """Let the first signal within the block set `received` and nothing else, for a caller that looks at it."""
        self._gentle = True
        try:
            yield
        finally:
            self._gentle = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Let a signal within the block end the process at once, for a caller that has not begun anything yet.

        An exception there would pass through the C++ code of a library that is being loaded, which aborts the process.
        """
        self._loading = True
        try:
            yield
        finally:
            self._loading = False

    @property
    def said(self) -> str:
        """The line that a stopped launch ends with."""
        return f"{self.cause}: the same command continues"

    @property
    def status(self) -> int:
        """The exit status of a launch that stops now."""
        return INTERRUPTED if self.received == signal.SIGINT else STOPPED

    @property
    def cause(self) -> str:
        """What stopped the launch, for its log and its attempts. Only Ray can take a signal, SIGTERM, for itself."""
        if self.received == signal.SIGINT:
            return "interrupted by the user"
        return f"stopped by {(self.received or signal.SIGTERM).name}"

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received, self._first = signal.Signals(number), time.monotonic()
        elif time.monotonic() - self._first < REPEAT_S:
            return
        if self._loading:
            end_process(self.said, self.status)
        if not (first and self._gentle):
            raise KeyboardInterrupt


class WindDown:
    """After a signal, asks the running units to save their cells, and tells when they have.

    Args:
        store: where the units look for the wish to stop.
        launch_id: the launch.
        signals: the signals received.
        note: shows a line to the user.
    """

    def __init__(self, store: Store, launch_id: str, signals: StopSignals, note: Callable[[str], None]) -> None:
        self._store, self._launch_id, self._signals, self._note = store, launch_id, signals, note
        self._running: set[str] = set()
        """The first key of each running unit."""
        self._deadline: float | None = None

    def started(self, job: UnitJob) -> None:
        """Note that a unit runs."""
        self._running.add(job.unit.trainings[0].key)

    def ended(self, job: UnitJob) -> None:
        """Note that a unit does not run any more."""
        self._running.discard(job.unit.trainings[0].key)

    @property
    def num_running(self) -> int:
        """How many units run."""
        return len(self._running)

    def step(self) -> None:
        """Look for a signal, and ask the units to stop after the first. Call this often, in the main thread."""
        self._signals.install()
        if self._signals.received is None or self._deadline is not None:
            return
        self._deadline = time.monotonic() + SAVE_S
        self._note(f"{self._signals.cause}: the running cells save their state; a second signal stops at once")
        try:
            self._store.drivers.ask_to_stop(self._launch_id)
        except StorageError as error:
            self._deadline = time.monotonic()
            self._note(f"the running cells cannot be asked to save: {error}")

    @property
    def over(self) -> bool:
        """Whether a signal came and the running units have ended, or had their time."""
        return self._deadline is not None and (not self._running or time.monotonic() > self._deadline)
