"""Ways to damage the files of a store, and what a launch makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.in_process import launch


class Killed(BaseException):
    """An error that no handler catches, to stand for a killed process."""


def stopped_after(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Kill a launch after a number of steps."""
    left = [steps]

    def step(self: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("goal_sweep.runners.execution.unit_listener.UnitListener.step", step)
        with pytest.raises(Killed):
            launch(sweep, patch)


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def quietly(act: Callable[[Path], None]) -> Callable[[Path], None]:
    """Change a file and leave its time alone, as bit rot does."""

    def changed(path: Path) -> None:
        before = path.stat()
        act(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


def swap(one: Path, other: Path) -> None:
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def trained_again(sweep: OpenedSweep) -> list[str]:
    """The trainings whose earlier files were set aside."""
    return sorted(path.name.partition("-")[0] for path in sweep.store.root.glob("cells/*/*.damaged-1"))


def data_check(sweep: OpenedSweep, *options: str) -> int:
    arguments = [str(sweep.store.root.parent / "tiny.yaml"), "--set", f"store={sweep.store.root}"]
    return run(["data", "check", *arguments, "--store", "--quick", *options])
