"""When a launch waits for room on a cluster, what it says, and when it does not wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from goal_sweep.runners.execution.session.session import RaySession

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.runners.execution.capacity import (
    Machine,
    Resources,
    check_possible,
)

NEED = Resources(cpus=2, gpus=0.5, accelerator="A100")


def machine(name: str, cpus: float = 0, gpus: float = 0, kind: str = "") -> Machine:
    resources = {"CPU": cpus, "GPU": gpus} | ({f"accelerator_type:{kind}": 1.0} if kind else {})
    return Machine(id=name, host=name, address="10.0.0.1", resources=resources)


HEAD, SMALL, OTHER = machine("head"), machine("small", 8, 0), machine("other", 8, 1, "T4")
RIGHT = machine("right", 8, 1, "A100")


def test_a_unit_asks_for_its_part_of_a_gpu_of_its_kind() -> None:
    assert NEED.bundle == {"CPU": 2.0, "GPU": 0.5, "accelerator_type:A100": 0.001}
    assert Resources(cpus=1, gpus=0).bundle == {"CPU": 1.0}
    assert [one.fits(NEED) for one in (HEAD, SMALL, OTHER, RIGHT)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("machines", "refused"),
    [
        ([HEAD], False),  # no worker yet
        ([HEAD, RIGHT], False),
        ([HEAD, SMALL, OTHER], True),
    ],
)
def test_only_what_can_never_come_is_refused(machines: Sequence[Machine], refused: bool) -> None:
    if not refused:
        check_possible(machines, NEED)
        return
    with pytest.raises(DeviceError) as raised:
        check_possible(machines, NEED)
    assert "a unit needs 2 CPU and 0.5 GPU of type A100" in str(raised.value)
    assert "its machines have 8 CPU and 0 GPU; 8 CPU and 1 GPU (T4)" in str(raised.value)


@pytest.mark.parametrize("more", [{}, {"grows": True}])
def test_who_says_that_machines_come_is_believed(more: dict[str, Any]) -> None:
    session = RaySession("10.0.0.1:6379", NEED, **more)
    if more:
        session._check_fit([HEAD, SMALL])
        return
    with pytest.raises(DeviceError, match="--devices N"):
        session._check_fit([HEAD, SMALL])
