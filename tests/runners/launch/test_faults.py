"""A fault at every file operation: a launch killed, refused or fed a flipped bit there continues to equal numbers."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.in_process import launch, results, sweep_in

Operation = tuple[str, Path]
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "ESTALE": errno.ESTALE}
SOME = 3
"""Operations of each kind of fault in a quick run, spread over the launch."""


class Killed(BaseException):
    """An error that no handler catches, to stand for a killed process."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Operation]]:
    """The numbers of a launch without a fault, and its file operations."""
    folder = tmp_path_factory.mktemp("unbroken")
    operations: list[Operation] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "before_operation", lambda name, path: operations.append((name, path)))
        assert launch(sweep_in(folder), patch).status == 0
    return results(sweep_in(folder)), operations


def fault_at(number: int, kind: str) -> Callable[[str, Path], None]:
    """A hook that does a fault at an operation, counted from 0. A disk that refuses a file refuses it from then on."""
    count, refused = iter(range(10**9)), list[Operation]()

    def hook(name: str, path: Path) -> None:
        here = next(count)
        if kind == "flip" and here == number and name == "read":
            _flip(path)
        elif kind == "kill" and here == number:
            raise Killed
        elif kind in ERRORS:
            refused.extend([(name, path)] if here == number else [])
            if (name, path) in refused:
                raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]), str(path))

    return hook


def _flip(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    with contextlib.suppress(OSError):
        content = bytearray(path.read_bytes())
        if content:
            content[len(content) // 2] ^= 16
            path.write_bytes(bytes(content))


@contextlib.contextmanager
def _faulty(patch: pytest.MonkeyPatch, number: int, kind: str) -> Iterator[None]:
    with patch.context() as here:
        here.setattr(atomic, "before_operation", fault_at(number, kind))
        with contextlib.suppress(Killed, GoalError):
            yield


def check(folder: Path, number: int, kind: str, numbers: dict[str, Any], patch: pytest.MonkeyPatch) -> OpenedSweep:
    """Launch with a fault, then launch again without one, and compare."""
    with _faulty(patch, number, kind):
        launch(sweep_in(folder), patch)
    sweep = sweep_in(folder)
    assert launch(sweep, patch).status == 0, f"{kind} at operation {number}"
    assert results(sweep) == numbers, f"{kind} at operation {number}"
    for training in sweep.trainings:
        charged = [attempt for attempt in sweep.store.folder(training).attempts.all() if attempt.charged]
        assert not charged, f"{kind} at operation {number}: {charged[0].reason}"
    assert not [status for status in sweep.statuses(thorough=True).values() if status.state != "done"]
    return sweep


def run_all(
    unbroken: tuple[dict[str, Any], list[Operation]], kind: str, most: int, root: Path, patch: pytest.MonkeyPatch
) -> int:
    numbers, operations = unbroken
    possible = [number for number, (name, _) in enumerate(operations) if (kind != "flip" or name == "read")]
    chosen = possible[:: max(1, len(possible) // most)]
    for number in chosen:
        check(root / f"{kind}-{number}", number, kind, numbers, patch)
    return len(chosen)


@pytest.mark.parametrize("kind", ["kill", "flip", "ENOSPC"])
def test_some_faults(
    unbroken: tuple[dict[str, Any], list[Operation]], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_all(unbroken, kind, SOME, tmp_path, monkeypatch) >= SOME


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["kill", "flip", *ERRORS])
def test_every_fault(
    unbroken: tuple[dict[str, Any], list[Operation]], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = int(os.environ.get("FAULTS", "1000000"))
    assert run_all(unbroken, kind, most, tmp_path, monkeypatch) >= min(most, 100)
