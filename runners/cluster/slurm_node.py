"""What runs on a node of a Slurm job beside the launch.

Usage: `python -m goal_sweep.runners.cluster.slurm_node --session FOLDER PART`.

`arrive` shows that this node's Python has goal-sweep and sees FOLDER, which belongs to the job. The other parts make a
Ray of several nodes, which find each other by files in FOLDER, a private folder of one run of the job. `head` starts
Ray's head with a token and ports of its own; its owner alone can read the token's file. `worker` joins the head.
`address` waits for the head and for the other nodes as `--missing-nodes` says, and prints the head's address.
The environment variable GOAL_SWEEP_NETWORK names the interface or the network over which they speak.

A batch system may signal every process of a job when it wants the job to save and end. Ray's processes ignore that, and
end at SIGUSR2: exactly what they have started, because another job of the same user may run Ray on the same node.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import psutil
from goal_sweep.runners.execution.session.joining import MODE, TOKEN_PATH
from goal_sweep.runners.execution.session.node import SAVING, NodeFailedError, RayNode, private_folder

from goal_sweep.goal_core.basics.atomic import replace_bytes
from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.sweeps.clusters import MissingNodes

_SEE_S = 30.0
"""Seconds that a network file system may take to show a new folder."""
_JOIN_S = 300.0
"""Seconds that a job of several nodes waits for the last of them."""
_POLL_S = 0.5
_TOKEN, _ADDRESS, _FAILED, _JOINED, _LOST = "token", "address", "failed", "joined-", "lost-"
NETWORK = "GOAL_SWEEP_NETWORK"
"""Variable with an interface, such as `ib0`, or a network, such as `10.1.0.0/16`."""


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
        _names(folder.parent)
        time.sleep(_POLL_S)


def _names(folder: Path) -> list[str]:
    """What a folder holds. Opening it makes a network file system look for new files."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


class Node:
    """One Ray node of a job.

    Args:
        session: the private folder of this run of the job.
    """

    def __init__(self, session: Path) -> None:
        self._session, self._ending = session, False
        self._number = os.environ.get("SLURM_PROCID", "0")
        job = os.environ.get("SLURM_JOB_ID", str(os.getpid()))
        # The nodes' own disk; the short path leaves room for the names of sockets.
        self._folder = private_folder(Path("/tmp") / f"goal-sweep-{job}-{session.name[-6:]}")
        token = {MODE: "token", TOKEN_PATH: str(session / _TOKEN)}
        self._ray = RayNode(session / f"ray-{self._number}.log", self._folder / "r", token)

    def run(self, start: Callable[[], None]) -> int:
        """Start Ray here, and wait for its end or for SIGUSR2. Returns the exit status."""
        signal.signal(signal.SIGUSR2, self._end)
        lost = _FAILED if start == self.head else f"{_LOST}{self._number}"
        try:
            start()
            while self._ray.is_running() and not self._ending:
                time.sleep(_POLL_S)
            if not self._ending:
                raise NodeFailedError(f"Ray's processes on {socket.gethostname()} have ended: {self._ray.last_lines}")
            return 0
        except NodeFailedError as error:
            if self._ending:  # it was asked to end while it started
                return 0
            print(f"error: {error}\n{self._ray.log_ends()}", file=sys.stderr)
            replace_bytes(self._session / lost, str(error).encode())
            return UnfinishedError.status
        finally:
            self._ray.end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, *_: object) -> None:
        self._ending = True

    def head(self) -> None:
        """Start the head, and write its address."""
        with os.fdopen(os.open(self._session / _TOKEN, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        address = self._ray.start_head(own_address(), *self._options())
        replace_bytes(self._session / _ADDRESS, address.encode())

    def worker(self) -> None:
        """Join the head."""
        self._ray.start(f"--address={wait_for_address(self._session)}", *self._options())
        self._ray.wait_until_up()
        replace_bytes(self._session / f"{_JOINED}{self._number}", socket.gethostname().encode())

    def _options(self) -> list[str]:
        """Options of `ray start`: what Slurm has given to the job on this node, and ports that the system chooses."""
        environment = os.environ
        counts = {"num-cpus": "SLURM_CPUS_ON_NODE", "num-gpus": "GOAL_SWEEP_GPUS"}
        options = [f"--{name}={environment[key]}" for name, key in counts.items() if key in environment]
        options += [f"--node-ip-address={own_address()}"] if environment.get(NETWORK) else []
        return [*options, "--min-worker-port=0", "--max-worker-port=0"]


def own_address() -> str:
    """This machine's address on the interface or in the network that NETWORK names, or else the one that Ray chooses.

    Raises:
        GoalError: it has none there; names those that it has.
    """
    if not (wanted := os.environ.get(NETWORK, "")):
        from ray.util import get_node_ip_address

        return str(get_node_ip_address())
    links = psutil.net_if_addrs().items()
    found = {name: [one.address for one in has if one.family == socket.AF_INET] for name, has in links}
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(wanted, strict=False)
        found[wanted] = [one for has in found.values() for one in has if ipaddress.ip_address(one) in network]
    if not found.get(wanted):
        there = ", ".join(f"{name} {' '.join(has)}" for name, has in found.items() if has)
        raise GoalError(f"{NETWORK}={wanted}: {socket.gethostname()} has no IPv4 address there; it has {there}")
    return found[wanted][0]


def wait_for_address(session: Path) -> str:
    """Wait for the head's address, as long as it takes: the job's time limit ends the wait, or the head's end.

    Raises:
        UnfinishedError: the head has ended, or the session is gone.
    """
    while True:
        names = _names(session)
        if not session.is_dir():
            raise UnfinishedError(f"{socket.gethostname()} no longer sees {session}")
        if _FAILED in names:
            raise UnfinishedError((session / _FAILED).read_text())
        if _ADDRESS in names:
            return (session / _ADDRESS).read_text()
        time.sleep(_POLL_S)


def wait_for_nodes(session: Path, nodes: int, missing: MissingNodes) -> None:
    """Wait until each node has joined or its Ray has ended, or long enough. Says how many have joined.

    Args:
        session: the private folder of this run of the job.
        nodes: nodes of the job.
        missing: what to do without some of them.

    Raises:
        UnfinishedError: the head has ended, or nodes are missing and the job must not go on without them.
    """
    start, told = time.monotonic(), False
    while True:
        wait_for_address(session)
        names = _names(session)
        gone = {name.removeprefix(_LOST) for name in names if name.startswith(_LOST)}
        joined = 1 + len({name.removeprefix(_JOINED) for name in names if name.startswith(_JOINED)} - gone)
        said, late = f"{joined} of {nodes} nodes joined", time.monotonic() > start + _JOIN_S
        if joined + len(gone) >= nodes or (late and missing != "wait"):
            break
        if late and not told:
            told = True
            print(f"goal-sweep: {said} within {_JOIN_S:.0f} s; waiting for the others", file=sys.stderr, flush=True)
        time.sleep(_POLL_S)
    if joined < nodes:
        said += f", Ray has ended on {len(gone)}" if gone else f" within {_JOIN_S:.0f} s"
        if missing != "go-on":
            raise UnfinishedError(f"{said}; cluster.slurm.missing_nodes is {missing}, so this run ends")
        said += "; going on without the others"
    print(f"goal-sweep: {said}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("arrive", "head", "worker", "address"))
    parser.add_argument("--session", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--missing-nodes", choices=get_args(MissingNodes), default="go-on")
    given = parser.parse_args(arguments)
    if given.part in ("head", "worker"):
        for number in SAVING:
            signal.signal(number, signal.SIG_IGN)
    try:
        wait_for_folder(given.session)
        if given.part == "address":
            address = wait_for_address(given.session)
            wait_for_nodes(given.session, given.nodes, given.missing_nodes)
            print(address)
        elif given.part == "arrive":
            if given.nodes > 1 and os.environ.get(NETWORK):
                own_address()
        else:
            node = Node(given.session)
            return node.run(node.head if given.part == "head" else node.worker)
    except GoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status if isinstance(error, UnfinishedError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
