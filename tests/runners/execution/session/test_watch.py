"""The watch on Ray: what counts as its end on this machine and on a cluster, and a driver that hangs in a call."""

from __future__ import annotations

import socket
import threading

import pytest
from goal_sweep.runners.execution.session.watch import RayWatch

from goal_sweep.runners.execution.session import watch as module
from tests.helpers.until import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_S", 0.01)
    monkeypatch.setattr(module, "STUCK_S", 0.2)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)


class Looks:
    """Says whether Ray's processes run, and notices each question."""

    def __init__(self) -> None:
        self.running, self.number = True, 0

    def __call__(self) -> bool:
        self.number += 1
        return self.running

    def several(self) -> None:
        before = self.number
        until(lambda: self.number > before + 20, "looks")


def watching(looks: Looks, head: str | None = None) -> tuple[RayWatch, threading.Event]:
    ended = threading.Event()
    watch = RayWatch(looks, head, ended.set)
    watch.start()
    return watch, ended


def test_on_this_machine_only_the_end_of_a_process_counts() -> None:
    looks = Looks()
    watch, ended = watching(looks)
    looks.several()
    assert (watch.lost, watch.answers_lately) == ("", True)
    looks.running = False
    until(lambda: watch.lost, "loss")
    assert watch.lost == "Ray's processes on this machine have ended"
    assert ended.wait(60)  # the driver hangs
    watch.stop()


def test_a_head_that_goes_away_is_lost_and_may_come_back() -> None:
    looks = Looks()
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as head:
        address = head.getsockname()
        watch, ended = watching(looks, f"127.0.0.1:{address[1]}")
        looks.several()
        assert (watch.lost, watch.answers_lately) == ("", True)
    until(lambda: watch.lost, "loss")
    assert watch.lost == "Ray's head process does not answer"
    assert not watch.answers_lately
    with socket.create_server(address, backlog=1000):
        until(lambda: not watch.lost, "answer")
    assert ended.wait(60)
    watch.stop()


@pytest.mark.parametrize("head", [None, "127.0.0.1:9"])
def test_a_driver_that_notices_the_loss_is_not_ended(head: str | None) -> None:
    looks = Looks()
    looks.running = head is not None
    watch, ended = watching(looks, head)
    until(lambda: watch.lost, "loss")
    watch.stop()
    assert not ended.wait(0.6)
    assert watch.lost
