"""Which process is meant by a record, and whether it still runs."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from typing import Annotated

import psutil
from pydantic import Field

from goal_sweep.goal_core.basics.machine import is_taken, machine_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """Identifies a process, even if a later one gets the same process number."""

    user: str = "?"
    host: str = "?"
    machine: str = ""
    """The kernel's boot id and its namespace of process numbers. Outside these, a process number means nothing; empty
    is that of no machine."""
    pid: Annotated[int, Field(ge=0, le=2**22)] = 0
    process_started: str = ""
    """Clock ticks from boot to the start of the process. No change of the clock affects it."""

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """The identity of the calling process."""
        pid = os.getpid()
        host, machine, started = socket.gethostname(), machine_identity(), _started(pid) or ""
        return cls(user=user_name(), host=host, machine=machine, pid=pid, process_started=started)

    def exists(self) -> bool | None:
        """Whether the process still runs.

        Returns:
            None if it cannot be seen from here: it runs on another machine, in another container, or hidden from this
            user.
        """
        if self.machine != machine_identity() or self.host != socket.gethostname():
            return None
        started = _started(self.pid)
        if started is None:
            return False
        return started == self.process_started if started and self.process_started else None


def user_name() -> str:
    """The name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user number that is in no password file
        return f"uid{os.getuid()}"


def _started(pid: int) -> str | None:
    """When a process of this machine started, in clock ticks since boot; None if there is no such process.

    Empty if the process exists, but this user may not see when it started.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return str(round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK")))
    except psutil.ZombieProcess:
        return None
    except (psutil.Error, OSError, ValueError, OverflowError):
        return "" if is_taken(pid) else None
