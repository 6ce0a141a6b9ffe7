"""How the nodes of a job find its Ray head: by files in a private folder that all of them see."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import time
from pathlib import Path

from goal_core.basics.atomic import replace_bytes
from goal_core.basics.errors import UnfinishedError
from runners.cluster.ray_ports import is_free, ports
from runners.cluster.ray_process import TOKEN, RayNode

_START_S = 120.0
"""Seconds that a head may take until it answers."""
_JOIN_S = 600.0
"""Seconds that a worker or a launch waits for the head."""
_ADDRESS, _FAILED = "address", "failed"


def run_head(node: RayNode, session: Path, folder: str, job: int) -> int:
    """Start the head on a free port, write its address, and wait for its end. Returns the exit status."""
    _write_private(session / TOKEN, secrets.token_hex(32))
    for port in ports(job):
        if not is_free(port):
            continue
        node.start(folder, port=port)
        if address := _answers(node, port):
            replace_bytes(session / _ADDRESS, address.encode())
            return node.wait()
        if node.is_running():
            break  # it hangs, and would on another port
    node.end()
    said = f"Ray's head did not start on {socket.gethostname()}: {node.last_lines}"
    replace_bytes(session / _FAILED, said.encode())
    print(f"error: {said}", file=sys.stderr)
    return UnfinishedError.status


def _answers(node: RayNode, port: int) -> str:
    """The head's address once it takes connections; empty if its process ends before, or it takes too long."""
    host = own_address()
    deadline = time.monotonic() + _START_S
    while node.is_running() and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5.0):
            time.sleep(1.0)  # another process may have taken the port first; then ours ends
            return f"{host}:{port}" if node.is_running() else ""
        time.sleep(0.3)
    return ""


def own_address() -> str:
    """The address of this machine that Ray uses: that of the interface which leads to other networks."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())


def wait_for_address(session: Path) -> str:
    """Wait for the head's address.

    Raises:
        UnfinishedError: the head did not start, or the session is gone.
    """
    deadline = time.monotonic() + _JOIN_S
    while time.monotonic() < deadline:
        try:
            names = os.listdir(session)  # opening the folder makes a network file system look for new files
        except OSError as error:
            said = f"{socket.gethostname()} no longer sees {session}: {error.strerror}"
            raise UnfinishedError(said) from error
        if _ADDRESS in names:
            return (session / _ADDRESS).read_text()
        if _FAILED in names:
            raise UnfinishedError((session / _FAILED).read_text())
        time.sleep(0.5)
    raise UnfinishedError(f"Ray's head gave no address within {_JOIN_S:.0f} s (see {session})")


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
