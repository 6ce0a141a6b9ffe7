"""The body of a trial, in a worker. It loads little at first, so the driver hears at once where a unit begins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

NODE_LOSS_S = 60.0
"""Seconds within which Ray notices that a machine is lost."""


def train_trial(config: dict[str, Any]) -> None:
    """Train a unit and report its events, each time with Ray's id of the machine.

    Args:
        config: ``job``, a reference to the unit's job; ``elsewhere``, whether other machines may train it.

    Raises:
        UnfitMachineError: this machine lacks what the unit needs; the driver was told what.
    """
    import ray
    from ray import tune

    node = ray.get_runtime_context().get_node_id()

    def send(events: Sequence[Any], **more: Any) -> None:
        tune.report({"node": node, "events": list(events), **more})  # waits until the driver has read it

    def is_lost(other: str) -> bool:
        return bool(other) and other != node and _is_lost(other)

    send([])
    from goal_sweep.runners.execution.inputs import UnfitMachineError
    from goal_sweep.runners.execution.worker import run_unit

    job = ray.get(config["job"])
    try:
        run_unit(job, partial(send, began=True), node=node, node_lost=is_lost, elsewhere=config["elsewhere"])
    except UnfitMachineError as error:
        send([], unfit=str(error))
        raise
    send([])


def _is_lost(node: str) -> bool:
    """Whether a machine is gone. Ray may notice that a while after it has restarted the machine's trials."""
    import ray

    deadline = time.monotonic() + NODE_LOSS_S
    while any(one["NodeID"] == node and one["Alive"] for one in ray.nodes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
    return True
