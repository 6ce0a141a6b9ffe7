"""Watches Ray's head process, without which Ray's calls block and, after a minute, end the driver with status 1."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

import psutil

PERIOD_S = 1.0
"""Seconds between two attempts to connect."""
STUCK_S = 8.0
"""Seconds that the driver gets to notice the loss by itself."""


class HeadWatch:
    """Connects to the head process every second, on its own thread.

    Args:
        address: ``host:port`` of the head process.
        patience: seconds without an answer after which it counts as lost; a cluster may start a new one.
        stuck: called on the thread if nobody has stopped the watch `STUCK_S` seconds after the loss, because the driver
            hangs in a call to Ray. It must end or replace the process.
    """

    def __init__(self, address: str, patience: float, stuck: Callable[[], None]) -> None:
        host, _, port = address.rpartition(":")
        self._target, self._patience, self._stuck = (host.strip("[]"), int(port)), patience, stuck
        self._over = threading.Event()
        self.lost = False
        """Whether the head process has not answered for too long."""
        self.answers_lately = True
        """Whether it answered the last attempt, so that a call to Ray does not block."""

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="goal-sweep head watch", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._over.wait(PERIOD_S):
            self.answers_lately = self.answers()
            if self.answers_lately:
                answered, self.lost = time.monotonic(), False
            silent = time.monotonic() - answered
            self.lost = silent > self._patience
            if silent > self._patience + STUCK_S:
                self._stuck()

    def answers(self) -> bool:
        """Whether the head process takes a connection."""
        try:
            with socket.create_connection(self._target, timeout=5.0):
                return True
        except OSError:
            return False


def end_process(line: str, status: int) -> None:
    """Print a line and end the process at once, whatever its main thread does."""
    os.write(2, f"{line}\n".encode())
    os._exit(status)


def end_children() -> None:
    """Kill every process that this one has started, directly or not."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
