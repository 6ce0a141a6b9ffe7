"""One Ray node within a batch job: `python -m runners.cluster.ray_node --session FOLDER head|address|worker`.

The session is a private folder that all nodes of the job see. `head` starts Ray's head with a token and ports of its
own; the token is in the file `token` there, readable by its owner alone, and Ray's processes are given its path.
`address` waits until the head answers and prints its address. `worker` joins the head.

A batch system may signal every process of a job when it wants the job to save and end, and Ray's processes would end at
once. So they are started with SIGTERM and SIGUSR1 blocked, and this process ends them at SIGUSR2: these alone, by their
process numbers, because another job of the same user may run Ray on the same node.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from goal_core.basics.errors import GoalError, UnfinishedError
from runners.cluster.arrival import wait_for_folder
from runners.cluster.ray_process import SAVING, RayNode
from runners.cluster.ray_session import run_head, wait_for_address
from runners.execution.private_folder import private_folder


def _own_folder(session: Path, job: int) -> str:
    """A folder of this job alone on the node's own disk; its short path leaves room for the names of sockets.

    Raises:
        GoalError: somebody else has made it.
    """
    return str(private_folder(Path("/tmp") / f"goal-sweep-{job}-{session.name[-6:]}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", type=Path, required=True)
    parser.add_argument("part", choices=("head", "worker", "address"))
    given = parser.parse_args(arguments)
    job = int(os.environ.get("SLURM_JOB_ID", os.getpid()))
    for number in SAVING:
        signal.signal(number, signal.SIG_IGN)
    try:
        wait_for_folder(given.session)
        if given.part == "address":
            print(wait_for_address(given.session))
            return 0
        node = RayNode(given.session, f"ray-{given.part}-{os.environ.get('SLURM_PROCID', '0')}.log")
        signal.signal(signal.SIGUSR2, lambda *_: node.ask_to_end())
        folder = _own_folder(given.session, job)
        try:
            if given.part == "head":
                return run_head(node, given.session, folder, job)
            node.start(folder, address=wait_for_address(given.session))
            return node.wait()
        finally:
            node.end()
            shutil.rmtree(folder, ignore_errors=True)
    except GoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status if isinstance(error, UnfinishedError) else 2


if __name__ == "__main__":
    sys.exit(main())
