"""After a signal, the running units are asked to save, and get some time for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from goal_core.basics.atomic import StorageError
from runners.execution.unit_line import UnitJob
from runners.launch.signals import StopSignals
from runners.store import Store

SAVE_S = 20.0
"""Seconds that the running units get to save their cells."""


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
