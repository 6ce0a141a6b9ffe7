"""Find out whether a Ray cluster can be joined, before Ray tries it for minutes with a line for every try."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from functools import cache

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's environment variables: whether it asks for a token, the token, and the file with it."""
TOKEN_FILE = "~/.ray/auth_token"
"""Where Ray looks for a token that the environment does not name."""
CONNECT_S, ANSWER_S = 4.0, 12.0
"""Seconds that the head may take to accept a connection, and to answer a question."""
_QUESTION = """
import sys
from ray.scripts.scripts import main
print(flush=True)
sys.argv.insert(1, "health-check")
main()
"""
HELP = "docs/ray_clusters.md"
_REFUSED = re.compile(r"InvalidAuthToken|Unauthenticated|AuthenticationError|find an authentication token")
"""What Ray says of a wrong token, and of none here."""


class ClusterGoneError(UnfinishedError):
    """Nothing answers at the address of the cluster, now."""


@cache
def reach(address: str) -> dict[str, str]:
    """Find out how a cluster can be joined from here, within 16 seconds after Ray is loaded. The answer is remembered.

    With an explicit address Ray does not use the token that it finds, unless the mode says so. With a token, it refuses
    the calls of a head that has none, and takes every worker for dead. So the head is asked without a token first.

    Args:
        address: ``host:port`` of the head process, or ``auto`` for the cluster that this machine belongs to.

    Returns:
        Environment variables with which Ray joins it.

    Raises:
        ClusterGoneError: nothing answers there.
        GoalError: the address is not that of a head process, the token is missing or wrong, or Ray's versions differ.
    """
    wanted = os.environ.get(MODE, "").lower()
    if address != "auto":
        _connect(address)
    mode, said = "disabled", _ask(address, "disabled")
    if not said and wanted == "token":
        raise GoalError(
            f"the Ray cluster at {address} asks for no token, but {MODE} is token here, and Ray needs the same on both "
            f"sides; start the head with a token, or unset {MODE} ({HELP})"
        )
    if _REFUSED.search(said) and wanted != "disabled":
        mode, said = "token", _ask(address, "token")
    if _REFUSED.search(said):
        raise GoalError(
            f"the Ray cluster at {address} asks for a token, and refuses what it gets from here: set {TOKEN} or "
            f"{TOKEN_PATH} to that of its head, or copy {TOKEN_FILE} from there, and unset {MODE} ({HELP})"
        )
    if said:
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no reason given")
        if "ersion" in last:
            raise GoalError(f"the Ray cluster at {address} has another version of Ray: {last}")
        raise ClusterGoneError(f"the Ray cluster at {address} does not answer: {last}")
    return {MODE: mode}


def _ask(address: str, mode: str) -> str:
    """Ask the head process for its version. Returns what Ray says against it; empty if it answers."""
    # In a process of its own: Ray prints a line for every try, from C++, and cannot be told to give up earlier.
    asked = subprocess.Popen(
        [sys.executable, "-c", _QUESTION, *([] if address == "auto" else ["--address", address])],
        env={**os.environ, MODE: mode},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with asked:
        assert asked.stdout is not None
        asked.stdout.readline()  # loading Ray takes long on a busy machine and from a network folder
        try:
            said = asked.communicate(timeout=ANSWER_S)[1]
        except subprocess.TimeoutExpired:
            asked.kill()
            raise ClusterGoneError(
                f"what is at {address} does not answer as a Ray head process does within {ANSWER_S:.0f} s; give "
                "host:port of the head, whose port is not that of the dashboard (8265) or the client (10001)"
            ) from None
    return (said.strip() or f"status {asked.returncode}") if asked.returncode else ""


def check_address(address: str) -> None:
    """Check that an address is written as that of a cluster is; whether one answers there shows later."""
    host, _, port = address.rpartition(":")
    if address != "auto" and ("://" in address or not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536):
        raise GoalError(
            f"--address {address}: give host:port of the head process, as `ray start --head` prints it (its port is "
            "6379 unless --port says otherwise), not the dashboard's or the client's, or auto"
        )


def _connect(address: str) -> None:
    """Refuse an address at which nothing listens, before Ray is loaded for it."""
    check_address(address)
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise ClusterGoneError(
            f"no Ray cluster at {address} ({why}): is its head running (`ray start --head --port={port}`), and may "
            "this machine reach the port? Then the same command continues"
        ) from error
