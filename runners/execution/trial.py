"""The body of a trial, in a worker. It loads little at first, so the driver hears at once where a unit begins."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

NODE_LOSS_S = 60.0
"""Seconds within which Ray notices that a machine is lost."""


def train_trial(config: dict[str, Any]) -> None:
    """Train a unit and report its events, each time with Ray's id of the machine and the worker.

    Args:
        config: ``job``, a reference to the unit's job; ``elsewhere``, whether other machines may train it.

    Raises:
        UnfitMachineError: this machine lacks what the unit needs; the driver was told what.
    """
    import ray
    from ray import tune

    node, turn = ray.get_runtime_context().get_node_id(), threading.Lock()
    where = f" on {socket.gethostname()} (pid {os.getpid()})"

    def send(events: Sequence[Any], **more: Any) -> None:
        with turn:  # a report waits until the driver has read it
            tune.report({"node": node, "where": where, "events": list(events), **more})

    def is_lost(other: str) -> bool:
        return bool(other) and other != node and _is_lost(other)

    send([])
    from goal_sweep.runners.execution.inputs import UnfitMachineError
    from goal_sweep.runners.execution.worker import run_unit

    job = ray.get(config["job"])
    with _signs(lambda: send([]), job.watchdog / 4):
        try:
            run_unit(job, partial(send, began=True), node=node, node_lost=is_lost, elsewhere=config["elsewhere"])
        except UnfitMachineError as error:
            send([], unfit=str(error))
            raise
    send([])


@contextmanager
def _signs(send: Callable[[], None], period: float) -> Iterator[None]:
    """Give a sign of life every so many seconds, on a thread of its own; none where nobody waits for them."""
    over = threading.Event()

    def give() -> None:
        while period and not over.wait(period):
            send()

    thread = threading.Thread(target=give, name="goal-sweep signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # its last report would be taken for one of the next trial


def _is_lost(node: str) -> bool:
    """Whether a machine is gone. Ray may notice that a while after it has restarted the machine's trials."""
    import ray

    deadline = time.monotonic() + NODE_LOSS_S
    while any(one["NodeID"] == node and one["Alive"] for one in ray.nodes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
    return True
