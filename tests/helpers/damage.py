"""Ways to damage the files of a store, and faults at a step or at a file operation of a launch."""

import errno
import os
import signal
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.runners.execution.worker import UnitCallback
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.forked import in_child
from tests.helpers.in_process import launch

ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "ESTALE")}
FAULTS = ("kill", "flip", *ERRORS)


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file and keep its time, as bit rot does. Again does not undo it."""
    content, before = bytearray(path.read_bytes()), path.stat()
    if content:
        place = len(content) // 2
        content[place] = (content[place] + 16) % 256
        path.write_bytes(bytes(content))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    """Take the end of a file away."""
    path.write_bytes(path.read_bytes()[:-100])


def killed_after(sweep: OpenedSweep, steps: int) -> None:
    """Launch a sweep in another process, which dies after a number of steps."""
    left = [steps]

    def step(self: UnitCallback) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def act() -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnitCallback, "step", step)
            return launch(sweep, patch).status

    assert in_child(act) == (-signal.SIGKILL, "")


def let_fail(patch: pytest.MonkeyPatch, fault: str, number: int) -> None:
    """Let a fault of `FAULTS` happen at a file operation of this process, counted from 0.

    A disk that refuses a file refuses it from then on. A bit flips before its file is read.
    """
    count, refused = iter(range(10**9)), set[tuple[str, Path]]()

    def hook(name: str, path: Path) -> None:
        here = next(count)
        if fault == "kill" and here == number:
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "flip" and here == number and name == "read" and path.is_file():
            flip(path)
        elif fault in ERRORS:
            refused.update([(name, path)] if here == number else [])
            if (name, path) in refused:
                raise OSError(ERRORS[fault], os.strerror(ERRORS[fault]), str(path))

    patch.setattr(atomic, "before_operation", hook)
