"""The watch on Ray's head process: an answer, a loss, and a driver that hangs in a call to Ray."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from runners.execution import head_watch
from runners.execution.head_watch import HeadWatch


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "PERIOD_S", 0.02)
    monkeypatch.setattr(head_watch, "STUCK_S", 0.3)


def test_a_head_that_goes_away_is_lost_and_a_driver_that_hangs_is_ended() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=100) as head:
        watch = HeadWatch(f"127.0.0.1:{head.getsockname()[1]}", 0.1, ended.set)
        watch.start()
        time.sleep(0.5)
        assert watch.answers()
        assert not watch.lost
    assert ended.wait(60)
    assert watch.lost
    watch.stop()


def test_a_driver_that_notices_the_loss_is_not_ended() -> None:
    ended = threading.Event()
    watch = HeadWatch("127.0.0.1:9", 0.05, ended.set)
    watch.start()
    deadline = time.monotonic() + 60
    while not watch.lost and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.stop()
    assert not ended.wait(0.6)
    assert watch.lost
