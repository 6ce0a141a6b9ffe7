"""Whether a node can take part in a batch job: `python -m runners.cluster.arrival FOLDER`, before the job begins.

That it runs shows that the node's Python has this goal-sweep. FOLDER belongs to the job and must be seen by every node.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from goal_core.basics.errors import GoalError

_SEE_S = 30.0
"""Seconds that a network file system may take to show a new folder."""


def wait_for_folder(folder: Path) -> None:
    """Wait until this machine sees a folder that another one may have made just now.

    Raises:
        GoalError: it does not see it; names the machine and the folder.
    """
    deadline = time.monotonic() + _SEE_S
    while not folder.is_dir():
        if time.monotonic() > deadline:
            raise GoalError(
                f"{socket.gethostname()} does not see {folder}; the folder of the store must be shared with all nodes "
                "of the job"
            )
        with contextlib.suppress(OSError):
            os.listdir(folder.parent)  # opening the folder makes a network file system look for new files
        time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    try:
        wait_for_folder(Path(folder))
    except GoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
