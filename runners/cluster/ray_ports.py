"""Ports of Ray's heads, of which several may run on one node."""

from __future__ import annotations

import socket
from collections.abc import Iterator

_FIRST_PORT, _NUM_PORTS = 20000, 12000
"""Ports of heads: above those of Ray's workers (10002 to 19999), below those that Linux gives to clients (32768)."""
_PORT_TRIES = 20


def ports(job: int) -> Iterator[int]:
    """The ports that a job's head tries, in order: two jobs on one node begin at different ones."""
    first = (job * 7) % _NUM_PORTS
    for number in range(_PORT_TRIES):
        yield _FIRST_PORT + (first + number * 101) % _NUM_PORTS


def is_free(port: int) -> bool:
    """Whether nothing on this machine listens on a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
