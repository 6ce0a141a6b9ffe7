"""The body of a trial, in a worker. It loads little at first, so the driver hears at once where a unit begins."""

from __future__ import annotations

import time
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
    tune.report({"node": node, "events": []})
    from runners.execution.inputs import UnfitMachineError
    from runners.execution.worker import run_unit

    try:
        run_unit(
            ray.get(config["job"]),
            lambda events: tune.report({"node": node, "events": list(events)}),
            node=node,
            node_lost=lambda other: bool(other) and other != node and _is_lost(other),
            elsewhere=config["elsewhere"],
        )
    except UnfitMachineError as error:
        tune.report({"node": node, "events": [], "unfit": str(error)})
        raise
    tune.report({"node": node, "events": []})


def _is_lost(node: str) -> bool:
    """Whether a machine is gone. Ray may notice that a while after it has restarted the machine's trials."""
    import ray

    deadline = time.monotonic() + NODE_LOSS_S
    while any(one["NodeID"] == node and one["Alive"] for one in ray.nodes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
    return True
