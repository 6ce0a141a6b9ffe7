"""Uploads in the background: training goes on while the files of its last epoch travel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

_THREADS = 4
Act = Callable[[], None]


@dataclass(slots=True)
class _Lane:
    """What a folder waits for, in order; the first is under way."""

    tasks: deque[tuple[Path, Act]] = field(default_factory=deque)
    error: Exception | None = None


class Uploads:
    """Does tasks in the background: those of one folder one after the other, those of several side by side.

    The order within a folder is that in which a training saves, so that the store never holds a state whose weights
    have not arrived. A file is not saved again before its last version has arrived; so at most one epoch is on its way.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="goal-sweep upload")
        self._lanes: dict[Path, _Lane] = {}
        self._changed = threading.Condition()
        self._num_waiting = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a call of `wait` waits."""
        return self._num_waiting > 0

    def add(self, folder: Path, path: Path, act: Act, *, once: bool = False) -> None:
        """Do something for a file after what was added before in a folder.

        Args:
            folder: the folder.
            path: the file.
            act: does it.
            once: leave it out if a task of this file waits that has not begun.

        Raises:
            Exception: the error of an earlier task in the folder, after which nothing more is done there.
        """
        with self._changed:
            lane = self._lanes.setdefault(folder, _Lane())
            if lane.error is not None:
                raise lane.error
            if once and any(waiting == path for waiting, _ in list(lane.tasks)[1:]):
                return
            lane.tasks.append((path, act))
            if len(lane.tasks) == 1:
                self._pool.submit(self._work, lane)

    def wait(self, folder: Path, path: Path | None = None) -> None:
        """Wait until the tasks of a folder, or of one file in it, are done.

        Raises:
            Exception: the error of a task in the folder.
        """
        with self._changed:
            lane = self._lanes.get(folder)
            if lane is None:
                return
            self._num_waiting += 1
            try:
                self._changed.wait_for(lambda: not any(path in (None, one) for one, _ in lane.tasks))
            finally:
                self._num_waiting -= 1
            if lane.error is not None:
                raise lane.error

    def wait_all(self) -> None:
        """Wait until every task is done, or has failed."""
        with self._changed:
            self._changed.wait_for(lambda: not any(lane.tasks for lane in self._lanes.values()))

    def forget(self, folder: Path) -> None:
        """Forget an error, because another attempt begins in the folder."""
        with self._changed:
            lane = self._lanes.get(folder)
            if lane is not None and not lane.tasks:
                del self._lanes[folder]

    def _work(self, lane: _Lane) -> None:
        while True:
            with self._changed:
                act = lane.tasks[0][1]
            error: Exception | None = None
            try:
                act()
            except Exception as raised:
                error = raised
            with self._changed:
                lane.tasks.popleft()
                if error is not None:
                    lane.error = error
                    lane.tasks.clear()
                self._changed.notify_all()
                if not lane.tasks:
                    return
