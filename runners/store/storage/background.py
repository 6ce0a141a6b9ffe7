"""What a process does and keeps for a storage in a bucket: uploads in the background, and working copies of files."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.machine import has_ended, process_tag

_AT_ONCE = 4
_NAME = re.compile(r"goal-sweep-work-([0-9a-f]+-\d+)-\w+")
_free = threading.BoundedSemaphore(_AT_ONCE)


class Lane:
    """Does tasks for the files of one folder in the background, one after the other, until one fails.

    That is the order in which a training saves, so that the store never holds a state whose weights have not arrived.
    A file is not saved again before its last version has arrived; so at most one epoch is on its way.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="goal-sweep upload")
        self._tasks: dict[Path, Future[None]] = {}
        """The last task of each file."""
        self._error: Exception | None = None
        self._waiting: set[object] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a call of `wait` waits."""
        return bool(self._waiting)

    def add(self, path: Path, act: Callable[[], None], *, once: bool = False) -> None:
        """Do something for a file after what was added before.

        Args:
            path: the file.
            act: does it.
            once: in place of the last task of this file, if that has not begun.

        Raises:
            Exception: the error of an earlier task, after which nothing more is done.
        """
        self._raise()
        if once and path in self._tasks:
            self._tasks[path].cancel()
        self._tasks[path] = self._pool.submit(self._do, act)

    def wait(self, path: Path | None = None) -> None:
        """Wait until all tasks, or those of one file, are done.

        Raises:
            Exception: the error of a task.
        """
        call = object()
        self._waiting.add(call)
        try:
            wait([task for name, task in list(self._tasks.items()) if path in (None, name)])
        finally:
            self._waiting.discard(call)
        self._raise()

    def _do(self, act: Callable[[], None]) -> None:
        if self._error is None:
            try:
                with _free:
                    act()
            except Exception as error:
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def scratch_folder() -> Path:
    """Make the folder, in that for temporary files or in ``GOAL_SWEEP_SCRATCH``; only its user may look inside.

    It is removed when this process ends. Those of processes that have ended without doing so are removed now.

    Raises:
        StorageError: it cannot be made.
    """
    parent = Path(os.environ.get("GOAL_SWEEP_SCRATCH") or tempfile.gettempdir()).absolute()
    for path in parent.glob("goal-sweep-work-*"):
        with contextlib.suppress(OSError):
            match = _NAME.fullmatch(path.name)
            if match and has_ended(match[1]) and path.stat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
    try:
        folder = tempfile.mkdtemp(prefix=f"goal-sweep-work-{process_tag()}-", dir=parent)
    except OSError as error:
        raise StorageError(
            f"cannot create a folder in {parent}, where files wait for upload: {error.strerror}; name another with "
            "GOAL_SWEEP_SCRATCH"
        ) from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
