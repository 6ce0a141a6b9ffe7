"""Wait for what another process or thread does, however slow the machine is."""

import socket
import time
from collections.abc import Callable

LONG_S = 120.0


def until(condition: Callable[[], object], what: str = "that", within: float = LONG_S) -> None:
    """Wait until a condition holds. Fails after some seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {within:.0f} s"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
