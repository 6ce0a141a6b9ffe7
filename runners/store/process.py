"""Which process this is, in a way that another process on the same machine can check without a clock."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, told apart from any later one that gets its number."""

    user: str
    host: str
    machine: str
    """The boot of the kernel and its process number space; numbers of another machine or container mean nothing."""
    pid: int
    process_started: str
    """When the kernel says the process started, in its own unit; empty where the system does not tell."""

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """The identity of the calling process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # containers run under numbers that no password file knows
            user = f"uid{os.getuid()}"
        pid = os.getpid()
        started = _process_started(pid) or ""
        return cls(user=user, host=socket.gethostname(), machine=_machine(), pid=pid, process_started=started)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ProcessIdentity:
        """The identity in a launch record; missing fields are empty, which no living process matches."""
        return cls(
            user=str(content.get("user", "?")),
            host=str(content.get("host", "?")),
            machine=str(content.get("machine", "")),
            pid=int(content.get("pid", 0)),
            process_started=str(content.get("process_started", "")),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a launch record."""
        return asdict(self)

    def exists(self) -> bool | None:
        """Whether the process still runs; None where it cannot be seen from here (another machine or container)."""
        if self.machine != _machine() or self.host != socket.gethostname():
            return None
        return _process_started(self.pid) == self.process_started


def _machine() -> str:
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts) or socket.gethostname()


def _process_started(pid: int) -> str | None:
    """When a process of this machine started, or None when there is no such process."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The second field is the program's name in parentheses, and may hold blanks and parentheses itself.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    return _process_started_elsewhere(pid)


def _process_started_elsewhere(pid: int) -> str | None:
    """As `_process_started` for systems without /proc."""
    try:
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() or None
