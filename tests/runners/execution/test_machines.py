"""Machines on which nothing succeeds are left alone for a while, and what a launch says that waits for room."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from goal_sweep.runners.execution.machines import BUSY_S, FAILURES, REST_S, ClusterMachines

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.runners.execution.capacity import Machine, Resources

HEAD, RIGHT = (
    Machine(id=name, host=name, address="a", resources={"CPU": cpus}) for name, cpus in (("h", 0.0), ("r", 8.0))
)


class Cluster:
    """Two machines and a clock."""

    def __init__(self, *names: str) -> None:
        self.now, self.said = 0.0, list[str]()
        self.machines = ClusterMachines(Resources(cpus=1, gpus=0), self.said.append, lambda: self.now)
        self.machines.machines = [
            Machine(id=name, host=name, address="10.0.0.1", resources={"CPU": 1.0}) for name in names or ("good", "bad")
        ]

    def waits(self, seconds: float, machines: Sequence[Machine], running: int = 0) -> None:
        for _ in range(round(seconds)):
            self.now += 1
            self.machines.check(machines, running=running)


def test_a_machine_is_left_alone_after_three_failures_of_different_units_which_are_not_to_blame() -> None:
    cluster = Cluster()
    assert cluster.machines.failed("bad", 1, "it broke") == []
    assert cluster.machines.failed("bad", 2, "it broke") == []
    assert cluster.machines.avoided() == ()
    assert cluster.machines.failed("bad", 3, "no driver") == [1, 2, 3]
    assert cluster.machines.avoided() == ("bad",)
    (said,) = cluster.said
    assert said.startswith("machine bad (10.0.0.1) is left alone for 30 min: 3 failures in a row and no success there")
    assert said.endswith("the last: no driver")
    assert cluster.machines.failed("bad", 4, "no driver") == [4]  # one that was there already


def test_a_success_between_failures_and_a_unit_that_fails_alone_say_nothing_against_a_machine() -> None:
    cluster = Cluster()
    for unit in range(FAILURES - 1):
        cluster.machines.failed("bad", unit, "it broke")
    cluster.machines.succeeded("bad")
    for _ in range(5):
        cluster.machines.failed("bad", 7, "it broke")
    assert cluster.machines.avoided() == ()
    assert cluster.said == []


def test_a_machine_gets_another_chance() -> None:
    cluster = Cluster()
    for unit in range(FAILURES):
        cluster.machines.failed("bad", unit, "it broke")
    cluster.now += REST_S + 1
    assert cluster.machines.avoided() == ()
    assert cluster.machines.failed("bad", 9, "it broke") == []


def test_the_last_machine_is_never_left_alone() -> None:
    cluster = Cluster("only")
    for unit in range(10):
        cluster.machines.failed("only", unit, "it broke")
    assert cluster.machines.avoided() == ()
    assert cluster.said == []
    cluster = Cluster()
    cluster.machines.unfit("bad", "bad has no data")
    cluster.machines.machines = [one for one in cluster.machines.machines if one.id == "bad"]  # the other one is lost
    assert cluster.machines.avoided() == ()


def test_an_unfit_machine_is_left_alone_at_once_and_when_all_are_the_reasons_are_known() -> None:
    cluster = Cluster()
    cluster.machines.unfit("bad", "bad: no such folder /data")
    cluster.machines.unfit("bad", "bad: no such folder /data")
    assert cluster.said == ["machine bad (10.0.0.1) is left alone for 30 min: bad: no such folder /data"]
    assert len(cluster.machines.check(cluster.machines.machines, running=0)) == 2
    cluster.machines.unfit("good", "good: no such folder /data")
    with pytest.raises(DeviceError, match="good: no such folder /data; bad: no such folder /data"):
        cluster.machines.check(cluster.machines.machines, running=0)
    assert len(cluster.said) == 1


def test_no_room_is_said_at_once_and_its_end_is_said_too() -> None:
    cluster = Cluster()
    cluster.waits(1, [HEAD])
    assert cluster.said == [
        "waiting for capacity: a unit needs 1 CPU and 0 GPU, and the cluster has 0 CPU and 0 GPU now"
    ]
    cluster.waits(1000, [HEAD])
    assert len(cluster.said) == 1
    cluster.waits(5, [HEAD, RIGHT])
    assert cluster.said[1:] == ["there is room for a unit again"]
    cluster.waits(5, [HEAD, RIGHT], running=1)
    cluster.waits(1, [HEAD])  # the machine is lost
    assert cluster.said[2].startswith("waiting for capacity")


def test_machines_that_others_use_are_waited_for_too() -> None:
    cluster = Cluster()
    cluster.waits(BUSY_S - 1, [RIGHT])
    assert cluster.said == []
    cluster.waits(2, [RIGHT])
    assert "1 machines of that size are taken by others, or starting" in cluster.said[0]
