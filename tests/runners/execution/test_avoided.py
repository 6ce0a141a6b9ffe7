"""Machines on which nothing succeeds are left alone for a while, as long as others can take the units."""

from __future__ import annotations

from runners.execution.avoided import FAILURES, REST_S, AvoidedMachines
from runners.execution.capacity import Machine, Resources


class Cluster:
    """Two machines and a clock."""

    def __init__(self, *names: str) -> None:
        self.now, self.said = 0.0, list[str]()
        self.avoided = AvoidedMachines(Resources(cpus=1, gpus=0), self.said.append, clock=lambda: self.now)
        self.avoided.machines = [
            Machine(id=name, host=name, address="10.0.0.1", resources={"CPU": 1.0}) for name in names or ("good", "bad")
        ]


def test_a_machine_is_left_alone_after_three_failures_of_different_units_which_are_not_to_blame() -> None:
    cluster = Cluster()
    assert cluster.avoided.failed("bad", 1, "it broke") == []
    assert cluster.avoided.failed("bad", 2, "it broke") == []
    assert cluster.avoided.now() == ()
    assert cluster.avoided.failed("bad", 3, "no driver") == [1, 2, 3]
    assert cluster.avoided.now() == ("bad",)
    (said,) = cluster.said
    assert said.startswith("machine bad (10.0.0.1) is left alone for 30 min: 3 failures in a row and no success there")
    assert said.endswith("the last: no driver")
    assert cluster.avoided.failed("bad", 4, "no driver") == [4]  # one that was there already


def test_a_success_between_failures_and_a_unit_that_fails_alone_say_nothing_against_a_machine() -> None:
    cluster = Cluster()
    for unit in range(FAILURES - 1):
        cluster.avoided.failed("bad", unit, "it broke")
    cluster.avoided.succeeded("bad")
    for _ in range(5):
        cluster.avoided.failed("bad", 7, "it broke")
    assert cluster.avoided.now() == ()
    assert cluster.said == []


def test_a_machine_gets_another_chance() -> None:
    cluster = Cluster()
    for unit in range(FAILURES):
        cluster.avoided.failed("bad", unit, "it broke")
    cluster.now += REST_S + 1
    assert cluster.avoided.now() == ()
    assert cluster.avoided.failed("bad", 9, "it broke") == []


def test_the_last_machine_is_never_left_alone() -> None:
    cluster = Cluster("only")
    for unit in range(10):
        cluster.avoided.failed("only", unit, "it broke")
    assert cluster.avoided.now() == ()
    assert cluster.said == []
    cluster = Cluster()
    cluster.avoided.unfit("bad", "bad has no data")
    cluster.avoided.machines = [one for one in cluster.avoided.machines if one.id == "bad"]  # the other one is lost
    assert cluster.avoided.now() == ()


def test_an_unfit_machine_is_left_alone_at_once_and_when_all_are_the_reasons_are_known() -> None:
    cluster = Cluster()
    cluster.avoided.unfit("bad", "bad: no such folder /data")
    cluster.avoided.unfit("bad", "bad: no such folder /data")
    assert cluster.said == ["machine bad (10.0.0.1) is left alone for 30 min: bad: no such folder /data"]
    assert cluster.avoided.all_unfit() == ""
    cluster.avoided.unfit("good", "good: no such folder /data")
    assert cluster.avoided.all_unfit() == "good: no such folder /data; bad: no such folder /data"
    assert len(cluster.said) == 1
