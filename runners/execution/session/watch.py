"""Notices the end of the Ray that a driver uses. Without it, the driver's calls to Ray block or end the driver."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from goal_sweep.runners.execution.session.supervisor import will_end

PERIOD_S = 1.0
"""Seconds between two looks."""
STUCK_S = 6.0
"""Seconds that the driver gets to notice the loss by itself. Ray ends it 13 s after the end of the node process."""
PATIENCE_S = 35.0
"""Seconds without an answer after which a cluster's head is lost. After 60 Ray ends the driver with status 1."""
_CONNECT_S = 5.0


class RayWatch:
    """Looks every second, on its own thread, whether Ray's processes live.

    On this machine only the end of a process counts, never its silence. The head of a cluster, on another machine, can
    only be asked.

    Args:
        is_running: whether the processes of this machine live that the driver needs.
        head: ``host:port`` of the head of a cluster; None asks nobody.
        stuck: called on the thread if nobody has stopped the watch `STUCK_S` seconds after the loss, because the driver
            hangs in a call to Ray. It must end or replace the process.
    """

    def __init__(self, is_running: Callable[[], bool], head: str | None, stuck: Callable[[], None]) -> None:
        host, _, port = (head or "").rpartition(":")
        self._head = (host.strip("[]"), int(port)) if head else None
        self._is_running, self._stuck = is_running, stuck
        self._over, self._answered = threading.Event(), time.monotonic()
        self.lost = ""
        """What is lost; empty as long as nothing is."""
        self.answers_lately = True
        """Whether the head answered when it was asked last, so that a call to Ray does not block."""

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="goal-sweep Ray watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        noticed = None
        while not self._over.wait(PERIOD_S):
            self.lost = self._look()
            noticed = (noticed or time.monotonic()) if self.lost else None
            if noticed and time.monotonic() - noticed > STUCK_S:
                self._stuck()

    def _look(self) -> str:
        """What is lost now."""
        if not self._is_running():
            return "Ray's processes on this machine have ended"
        self.answers_lately = self._head is None or _answers(self._head)
        if self.answers_lately:
            self._answered = time.monotonic()
            return ""
        silent = time.monotonic() - self._answered
        return "Ray's head process does not answer" if silent > PATIENCE_S else ""


def _answers(head: tuple[str, int]) -> bool:
    """Whether the head process takes a connection."""
    try:
        with socket.create_connection(head, timeout=_CONNECT_S):
            return True
    except OSError:
        return False


def end_process(line: str, status: int) -> None:
    """Print a line and end the process at once, whatever its main thread does."""
    with suppress(OSError):  # of a terminal that was closed
        os.write(2, f"{line}\n".encode())
    will_end(status)
    os._exit(status)
