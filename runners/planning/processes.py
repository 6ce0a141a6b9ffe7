"""Processes beside this one, for work that needs a process of its own."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def process_pool(count: int, *, tasks_each: int | None = None) -> ProcessPoolExecutor:
    """Make a pool of processes. They end with this one, however it ends, and leave Ctrl-C to it.

    Args:
        count: how many at most.
        tasks_each: tasks after which a process is replaced; None is never.
    """
    context = get_context("spawn")  # a forked process could not use CUDA
    return ProcessPoolExecutor(count, context, _begin, max_tasks_per_child=tasks_each)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent := parent_process():  # or else it would wait for tasks for ever
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
