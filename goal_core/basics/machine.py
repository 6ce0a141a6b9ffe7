"""Which machine this is, and whether the process that left a temporary file there still runs.

Process numbers mean something only within one boot of one kernel and one namespace. Two containers on a machine, or on
two, may have equal hostnames and processes with equal numbers, so neither tells whose a file is.
"""

import contextlib
import functools
import hashlib
import os
import re
import socket
from pathlib import Path

_TAG = re.compile(r"([0-9a-f]{12})-([1-9]\d*)")


def machine_identity() -> str:
    """The machine and its namespace of process numbers, outside of which a process number means nothing."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts) or socket.gethostname()


def process_tag() -> str:
    """A text for names of files, different for every process that runs anywhere at this moment."""
    return f"{_machine_digest()}-{os.getpid()}"


def has_ended(tag: str) -> bool | None:
    """Whether the process with a `process_tag` runs no more; None if that cannot be seen from here."""
    match = _TAG.fullmatch(tag)
    if match is None or match[1] != _machine_digest():
        return None
    return not is_taken(int(match[2]))


def is_taken(pid: int) -> bool:
    """Whether a process has this number, also where the system lists only a user's own processes."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)  # sends no signal, only asks
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


@functools.cache
def _machine_digest() -> str:
    return hashlib.sha256(machine_identity().encode()).hexdigest()[:12]
