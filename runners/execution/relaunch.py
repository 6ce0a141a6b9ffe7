"""Start the same command anew, in the place of this process.

When the node process of this machine's Ray is killed, the Ray inside the driver cannot be used again: native threads
end the process at some later moment. The store holds everything that a new launch needs, so the driver becomes one.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

MOST = 3
"""Times a command starts itself anew."""
_COUNT = "GOAL_SWEEP_RELAUNCHES"


def relaunch(error: Exception) -> NoReturn:
    """Replace this process by the same command.

    Args:
        error: why; raised instead when the command has started itself anew often enough.
    """
    count = int(os.environ.get(_COUNT, "0"))
    if count >= MOST:
        raise error
    os.environ[_COUNT] = str(count + 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
