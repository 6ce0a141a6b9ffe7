"""A process that dies at any step of a write leaves a store that goes on."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace

from goal_sweep.runners.store.leases.processes import ProcessIdentity

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.sealed_json import read_json
from goal_sweep.runners.store import BEST, Store
from goal_sweep.runners.store.storage.folders import LOCAL
from tests.helpers.store_cases import named, result_of, train

TRAINING = named("c" * 16)


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


def crash_at(monkeypatch, number):
    """Die at the given crash point, counted from 1. Returns the names of the points that were passed."""
    passed = []

    def point(name):
        passed.append(name)
        if len(passed) == number:
            raise Dead

    monkeypatch.setattr(atomic, "crash_point", point)
    return passed


def test_every_crash_point_leaves_a_store_that_goes_on(tmp_path, monkeypatch):
    """Kill a claim, its checkpoints, metrics and result at every step: no file is wrong, and the next attempt ends."""
    survived, number = False, 0
    while not survived:
        number += 1
        store = Store(tmp_path / str(number))
        store.prepare()
        with monkeypatch.context() as patch:
            passed = crash_at(patch, number)
            patch.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has this number: the writer will be dead
            folder = store.folder(TRAINING)
            try:
                store.write_cell(TRAINING.cell)
                folder.claim("killed")
                train(folder, 2)
                survived = True
            except Dead:
                pass
        check_nothing_wrong_is_readable(store)
        if survived:
            break
        died_done = store.status([TRAINING])[TRAINING].state == "done"
        successor = store.folder(TRAINING)
        store.write_cell(TRAINING.cell)
        if not died_done:
            successor.claim("next")
            train(successor, 2)
        assert store.status([TRAINING])[TRAINING].state == "done", passed[-1]
        weights = successor.path(BEST)
        assert LOCAL.digest(weights) == result_of(successor)["files"][BEST]["sha256"]
        assert read_json(store.root / "cells" / TRAINING.cell.id / "cell.json") == TRAINING.cell.describe()
        assert [attempt.charged for attempt in successor.attempts.all() if attempt.charged] == []
        if not died_done:
            assert not [path for path in successor.folder.rglob("*.tmp")]
    assert number > 40
    assert len(set(passed)) > 20


def check_nothing_wrong_is_readable(store):
    folder = store.folder(TRAINING)
    status = store.status([TRAINING])[TRAINING]
    assert not status.damaged
    assert len(folder.records()) in (0, 1, 2)
    for path in folder.folder.rglob("*.json"):
        json.loads(path.read_text())
    if status.state == "done":
        assert LOCAL.digest(folder.path(BEST)) == folder.result()["files"][BEST]["sha256"]


def test_launch_dies_at_every_point_of_its_start(tmp_path, monkeypatch):
    for number in range(1, 30):
        store = Store(tmp_path / str(number))
        store.prepare()
        with monkeypatch.context() as patch:
            passed = crash_at(patch, number)
            # Make the record that of a dead process, because this process is still alive.
            dead = replace(ProcessIdentity.of_this_process(), process_started="never")
            patch.setattr(ProcessIdentity, "of_this_process", lambda dead=dead: dead)
            launch = store.heartbeat("s", renew=3600)
            with contextlib.suppress(Dead):
                launch.start([TRAINING.key])
        with store.heartbeat("s") as next_launch:
            next_launch.start([TRAINING.key])
            assert store.folder(TRAINING).claim(next_launch.id) == 1
        if len(passed) < number:
            break
    assert number > 6
