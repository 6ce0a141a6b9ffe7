"""Find out whether a Ray cluster can be joined, before Ray tries it for minutes with a line for every try."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from goal_core.errors import GoalError, UnfinishedError

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Ray's environment variables: whether it asks for a token, the token, and the file with it."""
TOKEN_FILE = "~/.ray/auth_token"
"""Where Ray looks for a token that the environment does not name."""
CONNECT_S, ANSWER_S = 4.0, 12.0
"""Seconds that the head may take to accept a connection, and to answer a question."""
HELP = "docs/ray_clusters.md"
_REFUSED = re.compile(r"InvalidAuthToken|Unauthenticated|AuthenticationError")


class ClusterGoneError(UnfinishedError):
    """Nothing answers at the address of the cluster, now."""


def token_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The setting with which Ray uses a token that this user has.

    With an explicit address, Ray does not use its token unless the mode says so. A cluster that asks for none accepts a
    caller that has one.

    Args:
        environment: of this process.

    Returns:
        Environment variables to add; none if the mode is set, or if there is no token.

    Raises:
        GoalError: the file that should hold the token cannot be read.
    """
    if MODE in environment:
        return {}
    path = environment.get(TOKEN_PATH)
    if path and TOKEN not in environment and not os.access(Path(path).expanduser(), os.R_OK):
        raise GoalError(f"{TOKEN_PATH} names {path}, which cannot be read; it must hold the token of the cluster")
    return {MODE: "token"} if _token_source(environment) else {}


def _token_source(environment: Mapping[str, str]) -> str:
    """Where the token comes from, in the order in which Ray looks; empty without one."""
    if environment.get(TOKEN):
        return TOKEN
    if environment.get(TOKEN_PATH):
        return environment[TOKEN_PATH]
    return TOKEN_FILE if Path(TOKEN_FILE).expanduser().is_file() else ""


def check_reachable(address: str) -> None:
    """Check that a cluster can be joined from here, within a quarter of a minute.

    Args:
        address: ``host:port`` of the head process, or ``auto`` for the cluster that this machine belongs to.

    Raises:
        ClusterGoneError: nothing answers there.
        GoalError: the address is not that of a head process, the token is missing or wrong, or Ray's versions differ.
    """
    settings = token_settings(os.environ)
    if address != "auto":
        _connect(*_host_and_port(address))
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    command += [] if address == "auto" else ["--address", address]
    try:
        # In a process of its own: Ray prints a line for every try, from C++, and cannot be told to give up earlier.
        asked = subprocess.run(
            command,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterGoneError(_silent(address)) from None
    if asked.returncode:
        raise _explained(address, asked.stderr, {**os.environ, **settings})


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


def _explained(address: str, said: str, environment: Mapping[str, str]) -> GoalError:
    """The error for what Ray said."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no reason given")
    if _REFUSED.search(said):
        return GoalError(_token_advice(address, environment))
    if "ersion" in last:
        return GoalError(f"the Ray cluster at {address} has another version of Ray: {last.partition(': ')[2] or last}")
    if "find any running Ray" in said:
        return ClusterGoneError("--address auto: no Ray runs on this machine; give host:port of the head process")
    if "multiple active Ray" in said:
        return GoalError(f"--address auto: {last.partition(': ')[2]}")
    return ClusterGoneError(f"the Ray cluster at {address} does not answer: {last}")


def _token_advice(address: str, environment: Mapping[str, str]) -> str:
    source = _token_source(environment)
    if environment.get(MODE, "").lower() == "disabled":
        return f"the Ray cluster at {address} asks for a token, but {MODE} is disabled here; unset it ({HELP})"
    if source:
        return f"the Ray cluster at {address} refuses the token in {source}; it must be the one of its head ({HELP})"
    return (
        f"the Ray cluster at {address} asks for a token, and there is none here: set {TOKEN} or {TOKEN_PATH}, or copy "
        f"{TOKEN_FILE} from the head ({HELP})"
    )
