"""Find out whether a Ray cluster can be joined, before Ray tries it for minutes with a line for every try."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from goal_core.basics.errors import GoalError, UnfinishedError

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
_REFUSED = re.compile(r"InvalidAuthToken|Unauthenticated|AuthenticationError")


class ClusterGoneError(UnfinishedError):
    """Nothing answers at the address of the cluster, now."""


def _token_source() -> str:
    """Where the token comes from, in the order in which Ray looks; empty without one.

    Raises:
        GoalError: the file that should hold it cannot be read.
    """
    if os.environ.get(TOKEN):
        return TOKEN
    if path := os.environ.get(TOKEN_PATH):
        if not os.access(Path(path).expanduser(), os.R_OK):
            raise GoalError(f"{TOKEN_PATH} names {path}, which cannot be read; it must hold the token of the cluster")
        return path
    return TOKEN_FILE if Path(TOKEN_FILE).expanduser().is_file() else ""


@cache
def reach(address: str) -> dict[str, str]:
    """Find out how a cluster can be joined from here, within 16 seconds after Ray is loaded. The answer is remembered.

    With an explicit address Ray does not use the token that it finds, unless the mode says so. With a token, it refuses
    the calls of a head that has none, and takes every worker for dead. So the head is asked with and without a token,
    at the same time.

    Args:
        address: ``host:port`` of the head process, or ``auto`` for the cluster that this machine belongs to.

    Returns:
        Environment variables with which Ray joins it.

    Raises:
        ClusterGoneError: nothing answers there.
        GoalError: the address is not that of a head process, the token is missing or wrong, or Ray's versions differ.
    """
    mode = os.environ.get(MODE, "").lower()
    if address != "auto":
        _connect(*_host_and_port(address))
    with ThreadPoolExecutor() as questions:
        guarded = questions.submit(_ask, address, "token") if mode != "disabled" and _token_source() else None
        said = _ask(address, "disabled")
    if not said and mode == "token":
        raise GoalError(
            f"the Ray cluster at {address} asks for no token, but {MODE} is token here, and Ray needs the same on both "
            f"sides; start the head with a token, or unset {MODE} ({HELP})"
        )
    if said and _REFUSED.search(said) and guarded is not None:
        said, mode = guarded.result(), "token"
    if said:
        raise _explained(address, said)
    return {MODE: "token" if mode == "token" else "disabled"}


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
            raise ClusterGoneError(_silent(address)) from None
    return (said.strip() or f"status {asked.returncode}") if asked.returncode else ""


def _host_and_port(address: str) -> tuple[str, int]:
    if "://" in address:
        raise GoalError(
            f"--address {address} is the address of Ray's dashboard or client; give host:port of the head process, as "
            "`ray start --head` prints it (its port is 6379 unless --port says otherwise)"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise GoalError(f"--address must be host:port of the head process, such as {address}:6379, or auto")
    return host.strip("[]"), int(port)


def _connect(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except socket.gaierror as error:
        raise GoalError(f"--address {host}:{port}: no machine has the name {host} ({error.strerror})") from error
    except (OSError, OverflowError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise ClusterGoneError(
            f"no Ray cluster at {host}:{port} ({why}): is its head running (`ray start --head --port={port}`), and may "
            "this machine reach the port? Then the same command continues"
        ) from error


def _silent(address: str) -> str:
    if address == "auto":
        return (
            "--address auto: the Ray that ran last on this machine does not answer; give host:port of the head process"
        )
    return (
        f"something at {address} takes connections, but does not answer as a Ray head process does within "
        f"{ANSWER_S:.0f} s; is the port that of the head, not of the dashboard (8265) or the client (10001)?"
    )


def _explained(address: str, said: str) -> GoalError:
    """The error for what Ray said."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no reason given")
    if _REFUSED.search(said):
        return GoalError(_token_advice(address))
    if "ersion" in last:
        return GoalError(f"the Ray cluster at {address} has another version of Ray: {last.partition(': ')[2] or last}")
    if "find any running Ray" in said:
        return ClusterGoneError("--address auto: no Ray runs on this machine; give host:port of the head process")
    if "multiple active Ray" in said:
        return GoalError(f"--address auto: {last.partition(': ')[2]}")
    return ClusterGoneError(f"the Ray cluster at {address} does not answer: {last}")


def _token_advice(address: str) -> str:
    source = _token_source()
    if os.environ.get(MODE, "").lower() == "disabled":
        return f"the Ray cluster at {address} asks for a token, but {MODE} is disabled here; unset it ({HELP})"
    if source:
        return f"the Ray cluster at {address} refuses the token in {source}; it must be the one of its head ({HELP})"
    return (
        f"the Ray cluster at {address} asks for a token, and there is none here: set {TOKEN} or {TOKEN_PATH}, or copy "
        f"{TOKEN_FILE} from the head ({HELP})"
    )
