"""A process of its own for what must be able to die, hang or be suspended: a fork, which has imported everything."""

import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from goal_sweep.goal_core.basics.errors import GoalError

FORK = multiprocessing.get_context("fork")


def forked(act: Callable[..., object], *arguments: object) -> multiprocessing.process.BaseProcess:
    """Start a function in a fork of this process."""
    process = FORK.Process(target=act, args=arguments, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the tests' threads hold no lock that a child needs
        process.start()
    return process


def exit_status(process: multiprocessing.process.BaseProcess) -> int:
    """Wait for the end of a fork. Returns its exit status, which is negative after a signal."""
    process.join(200)
    assert process.exitcode is not None, "it has not ended"
    return process.exitcode


def in_child(act: Callable[[], int]) -> tuple[int, str]:
    """Run a command in a fork. Returns its status, 2 after an error for the user, and what the error says."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"

        def run() -> None:
            status = 99
            try:
                status = act()
            except GoalError as error:
                said.write_text(str(error))
                status = 2
            except BaseException as error:
                said.write_text(repr(error))
            finally:
                os._exit(status)

        status = exit_status(forked(run))
        text = said.read_text() if said.exists() else ""
    assert status != 99, text
    return status, text
