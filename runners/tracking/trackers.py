"""Tells the trackers of a sweep's plugins what becomes of its trainings, on a thread that training never waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.runners.results import asked_row
from goal_sweep.sweeps import ResolvedSweep, Tracker, Training, trackers


class Trackers:
    """The trackers of a sweep during a launch. Nothing that they do ends or delays it.

    Args:
        sweep: the sweep.
        warn: receives a line, once for each tracker, on another thread.
    """

    def __init__(self, sweep: ResolvedSweep, warn: Callable[[str], None]) -> None:
        plugins = {plugin.name for plugin in sweep.config.plugins}
        self._classes = [entry for entry in trackers.values() if entry.plugin in plugins]
        self._sweep, self._warn = sweep.config.name, warn
        self._made: dict[str, Tracker] = {}
        self._refused: set[str] = set()
        """The names of those that have raised."""
        self._told: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="goal-sweep trackers", daemon=True)

    def begin(self, training: Training) -> None:
        """Tell that a training begins."""
        self._tell(lambda tracker: tracker.begin(training.key, asked_row(training)))

    def epoch(self, training: Training, epoch: int, metrics: Mapping[str, float]) -> None:
        """Tell of an epoch's metrics."""
        self._tell(lambda tracker: tracker.epoch(training.key, epoch, metrics))

    def end(self, training: Training, status: str, metrics: Mapping[str, float]) -> None:
        """Tell that a training is done, or failed."""
        self._tell(lambda tracker: tracker.end(training.key, status, metrics))

    def close(self, seconds: float) -> None:
        """Tell that the launch ends, and wait until all is told, but no longer than so many seconds."""
        if self._thread.ident is not None:
            self._tell(lambda tracker: tracker.close())
            self._told.put(None)
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._warn(f"trackers have not taken everything within {seconds:g} s")

    def _tell(self, call: Callable[[Tracker], None]) -> None:
        if self._classes:
            self._told.put(call)
            if self._thread.ident is None:
                self._thread.start()

    # What follows runs on the thread.

    def _work(self) -> None:
        while (call := self._told.get()) is not None:
            for entry in self._classes:
                self._pass_on(entry, call)

    def _pass_on(self, entry: Entry[Callable[[str], Tracker]], call: Callable[[Tracker], None]) -> None:
        try:
            if entry.name not in self._made:
                self._made[entry.name] = entry.function(self._sweep)
            call(self._made[entry.name])
        except (Exception, SystemExit) as error:
            if entry.name not in self._refused:
                self._refused.add(entry.name)
                said = f"{type(error).__name__}: {first_line(error)}"
                self._warn(f"tracker {entry.name} ({entry.plugin}): {said}; training goes on")
