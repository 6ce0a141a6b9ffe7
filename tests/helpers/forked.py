"""A process of its own for what must be able to die, hang or be suspended: a fork, which has imported everything."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable

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
