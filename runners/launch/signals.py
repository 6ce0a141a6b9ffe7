"""How a launch ends: at a first signal, which lets the cells save, at a second one at once, or with Ray.

Ctrl-C comes from the user, SIGHUP from a terminal that closes, SIGTERM from a batch system that takes the machine away,
and SIGUSR1 from one that was asked to warn some time before. Where Ray's own processes end, its library ends the launch
within milliseconds, or waits for them, and nothing in the launch could say so: a plain parent does. This module loads
no library, so that a signal in the first moment of a launch finds a handler.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

STOPPED, INTERRUPTED = 75, 130
"""Exit status of a launch that was stopped before its end, and of one that the user interrupted."""
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
REPEAT_S = 1.0
"""A signal this soon after another is the same wish: some senders signal a process and then its whole group."""
_OWN = 16
"""Added to the exit status of a launch that ends by itself; Ray ends a process with 1."""
_LOOK_S = 1.0
_RAY_LOOK_S, _RAY_DEAD_S = 3.0, 9.0
"""Seconds between a parent's looks at the processes of Ray, and how long one may be dead, as while Ray shuts down."""
_PARENT = "GOAL_SWEEP_PARENT"
"""Variable of a launch: the number of its parent's process."""
_parent = int(os.environ.pop(_PARENT, "0"))
"""That number; 0 without a parent. It is taken out, so that a command that a launch starts does not inherit it."""


def end_at_once(number: int, frame: FrameType | None = None) -> None:
    """Handle a signal while a launch has not begun anything yet: print a line and end the process.

    An exception would pass through the C++ code of a library that is being loaded, which aborts the process.
    """
    with suppress(OSError):  # nobody may read it
        os.write(2, f"{_cause(number)}: the same command continues\n".encode())
    os._exit(own_status(_status(number)))


def handle(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Have all signals that stop a launch handled. SIGHUP stays ignored where it is, as by `nohup`.

    Returns:
        The handlers before.
    """
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, earlier in before.items():
        if number != signal.SIGHUP or earlier != signal.SIG_IGN:
            signal.signal(number, handler)
    return before


class StopSignals:
    """Handles the signals that end a launch. A context manager, for the main thread.

    Outside of `gentle` and `loading` a signal raises `KeyboardInterrupt`, which is also what Ray's calls raise for any
    signal. Within `gentle` the first signal only sets `received`.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal received; None before."""
        self._first = 0.0
        self._gentle = False
        self._before: Mapping[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = handle(self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Put the handlers in place again, because Ray and Tune install their own."""
        handle(self._handle)

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
        """Let a signal within the block end the process at once; see `end_at_once`."""
        handle(end_at_once)
        try:
            yield
        finally:
            self.install()

    @property
    def status(self) -> int:
        """The exit status of a launch that stops now."""
        return _status(self.received)

    @property
    def cause(self) -> str:
        """What stopped the launch, for its log and its attempts."""
        return _cause(self.received)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received, self._first = signal.Signals(number), time.monotonic()
        elif time.monotonic() - self._first < REPEAT_S:
            return
        if not (first and self._gentle):
            raise KeyboardInterrupt


def _cause(number: int | None) -> str:
    # Only Ray can take a signal, SIGTERM, for itself.
    return "interrupted by the user" if number == signal.SIGINT else f"stopped by {signal.Signals(number or 15).name}"


def _status(number: int | None) -> int:
    return INTERRUPTED if number == signal.SIGINT else STOPPED


def has_parent() -> bool:
    """Whether this process is a launch with such a parent."""
    return _parent != 0


def watch_over(command: list[str]) -> int:
    """Run a launch to its end and return its exit status: 75, with a line, where it ended without its own word."""
    launch = subprocess.Popen(command, env={**os.environ, _PARENT: str(os.getpid())})
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup ignores one
            signal.signal(number, lambda received, frame: launch.send_signal(received))
    if (status := _wait(launch)) >= _OWN:
        return status - _OWN
    how = f"signal {-status}" if status < 0 else f"status {status}"
    said = [f"this launch was ended, by Ray or from outside ({how}); the same command continues"]
    folders = Path(os.environ.get("RAY_TMPDIR") or "/tmp").glob(f"goal-ray-*-{launch.pid}/ray/session_latest/logs")
    said += [f"what Ray says of it, until the next launch, is in {one}" for one in folders]
    print(*said, sep="\n", file=sys.stderr, flush=True)
    return STOPPED


def _wait(launch: subprocess.Popen[bytes]) -> int:
    """Wait for a launch, and end it where one of the processes without which its local Ray is over stays dead.

    Ray's library waits for such a process as long as for a slow one, and lets no other thread of the launch run.
    """
    dead_s = 0.0
    while True:
        with suppress(subprocess.TimeoutExpired):
            return launch.wait(_RAY_LOOK_S)
        dead_s = dead_s + _RAY_LOOK_S if _lacks_ray(launch.pid) else 0.0
        if dead_s > _RAY_DEAD_S:
            print("a process of Ray has ended, so this launch ends", file=sys.stderr, flush=True)
            launch.kill()


def _lacks_ray(launch: int) -> bool:
    import psutil

    with suppress(psutil.Error):  # it ends just now
        own = [one for one in psutil.Process(launch).children() if one.name() in ("raylet", "gcs_server")]
        return any(one.status() == psutil.STATUS_ZOMBIE for one in own)
    return False


def own_status(status: int) -> int:
    """The exit status by which the parent, if there is one, sees that this process ends by itself."""
    return status + _OWN if has_parent() else status


def end_with_parent() -> None:
    """Stop this launch, as by SIGTERM, if its parent ends first."""

    def wait() -> None:
        while os.getppid() == _parent:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="goal-sweep parent", daemon=True).start()
