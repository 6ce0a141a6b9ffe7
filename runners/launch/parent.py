"""The plain parent of a launch, which starts it again where it ended without its own word.

Ray's library ends its process within milliseconds of the end of Ray's own, and nothing in that process could say so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

MOST_RESTARTS = 3
_OWN = 16
"""Added to the exit status of a launch that ends by itself; Ray ends a process with 1."""
_LOOK_S = 1.0
_PARENT = "GOAL_SWEEP_PARENT"
"""Variable of a launch: the number of its parent's process."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def has_parent() -> bool:
    """Whether this process is a launch with such a parent."""
    return _PARENT in os.environ


def watch_over(command: list[str]) -> int:
    """Run a launch to its end, again where it ended without its word, and return its exit status."""
    asked_to_end: list[int] = []
    for restarts in range(MOST_RESTARTS + 1):
        launch = subprocess.Popen(command, env={**os.environ, _PARENT: str(os.getpid())})
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup ignores one
                signal.signal(number, partial(_pass_on, launch, asked_to_end))
        if (status := launch.wait()) >= _OWN:
            return status - _OWN
        goes_on = restarts < MOST_RESTARTS and not asked_to_end
        again = "it goes on" if goes_on else "the same command continues"
        print(f"this launch was ended, by Ray or from outside; {again}", file=sys.stderr, flush=True)
        if not goes_on:
            break
    return 75


def _pass_on(launch: subprocess.Popen[bytes], received: list[int], number: int, frame: object) -> None:
    received.append(number)
    launch.send_signal(number)


def own_status(status: int) -> int:
    """The exit status by which the parent, if there is one, sees that this process ends by itself."""
    return status + _OWN if has_parent() else status


def end_with_parent() -> None:
    """Stop this launch, as by SIGTERM, if its parent ends first."""

    def wait() -> None:
        while os.getppid() == int(os.environ[_PARENT]):
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="goal-sweep parent", daemon=True).start()
