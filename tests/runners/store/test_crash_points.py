"""A process that dies at any step of a write leaves a store that goes on."""

import contextlib
import json
import os
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.files import read_json
from goal_sweep.runners.store import BEST, Store
from tests.helpers.store_cases import named, result_of, train

TRAINING = named("c" * 16)


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


def crash_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Die before the given change of a file, counted from 1. Returns the changes that were begun."""
    passed: list[str] = []

    def point(operation: str, path: Path) -> None:
        passed.extend([f"{path.name}: {operation}"] * (operation != "read"))
        if len(passed) == number:
            raise Dead

    patch.setattr(atomic, "before_operation", point)
    return passed


def test_every_crash_point_leaves_a_store_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a claim, its checkpoints, metrics and result at every step: no file is wrong, and the next attempt ends."""
    passed: list[str] = []
    for number in range(1, 500):
        store = Store(tmp_path / str(number))
        store.prepare()
        folder = store.folder(TRAINING)
        with monkeypatch.context() as patch, contextlib.suppress(Dead):
            passed = crash_at(patch, number)
            patch.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has this number: the writer will be dead
            store.write_cell(TRAINING.cell)
            folder.claim("killed")
            train(folder, 2)
        assert len(folder.records()) in (0, 1, 2)
        for path in folder.folder.rglob("*.json"):
            json.loads(path.read_text())
        if len(passed) < number:
            break
        died_done = store.status([TRAINING])[TRAINING].state == "done"
        if not died_done:
            successor = store.folder(TRAINING)
            store.write_cell(TRAINING.cell)
            successor.claim("next")
            train(successor, 2)
            assert not list(successor.folder.rglob("*.tmp"))
        assert store.status([TRAINING])[TRAINING].state == "done", passed[-1]
        assert folder.storage.digest(folder.place(BEST)) == result_of(folder)["files"][BEST]["sha256"]
        assert (read_json(store.root / "cells" / TRAINING.cell.id / "cell.json") or {})["label"] == TRAINING.cell.label
        assert not any(attempt.counted for attempt in folder.attempts.all())
    assert number > 40
    assert len(set(passed)) > 20
