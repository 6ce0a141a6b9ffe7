"""The plain parent of a launch, which starts it again where it ended without its own word.

Ray's library ends its process within milliseconds of the end of Ray's own, and nothing in that process could say so.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache, partial

MOST_RESTARTS = 3
_WORD = "GOAL_SWEEP_PARENT"
"""Variable of a launch: the number of its connection to its parent."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def has_parent() -> bool:
    """Whether this process is a launch with such a parent."""
    return _WORD in os.environ


def watch_over(command: list[str]) -> int:
    """Run a launch to its end, again where it ended without its word, and return its exit status."""
    asked_to_end: list[int] = []
    for restarts in range(MOST_RESTARTS + 1):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            environment = {**os.environ, _WORD: str(theirs.fileno())}
            launch = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
            theirs.close()
            for number in _SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup ignores one
                    signal.signal(number, partial(_pass_on, launch, asked_to_end))
            status = launch.wait()
            with suppress(OSError):
                if ours.recv(1):
                    return status
        goes_on = restarts < MOST_RESTARTS and not asked_to_end
        again = "it goes on" if goes_on else "the same command continues"
        print(f"this launch was ended, by Ray or from outside; {again}", file=sys.stderr, flush=True)
        if not goes_on:
            break
    return 75


def _pass_on(launch: subprocess.Popen[bytes], received: list[int], number: int, frame: object) -> None:
    received.append(number)
    launch.send_signal(number)


def say(status: int) -> None:
    """Tell the parent, if there is one, that this launch ends with a status of its own."""
    if has_parent():
        with suppress(OSError):
            _connection().send(str(status).encode())


def end_with_parent() -> None:
    """Stop this launch, as by SIGTERM, if its parent ends first."""

    def wait() -> None:
        _connection().recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="goal-sweep parent", daemon=True).start()


@cache
def _connection() -> socket.socket:
    return socket.socket(fileno=int(os.environ[_WORD]))  # which Python does not pass on to further processes
