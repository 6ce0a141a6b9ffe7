"""Processes beside this one, for work that needs a process of its own."""

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread


def process_pool(count: int, *, tasks_each: int | None = None) -> ProcessPoolExecutor:
    """Make a pool of processes. They end with this one, however it ends, and leave Ctrl-C to it.

    After ``tasks_each`` tasks a process is replaced.
    """
    # A forked process could not use CUDA.
    return ProcessPoolExecutor(count, get_context("spawn"), _begin, max_tasks_per_child=tasks_each)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
