"""A fault at every file operation: a launch killed, refused or fed a flipped bit there continues to equal numbers."""

import os
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics import atomic
from tests.helpers.damage import FAULTS, let_fail
from tests.helpers.few import few
from tests.helpers.forked import in_child
from tests.helpers.in_process import counted, launch, results, sweep_in

SOME = 2
"""Operations of each kind of fault in a quick run, spread over the launch."""
Unbroken = tuple[dict[str, Any], list[str]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """The numbers of a launch without a fault, and the names of its file operations."""
    folder, operations = tmp_path_factory.mktemp("unbroken"), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "before_operation", lambda name, path: operations.append(name))
        assert launch(sweep_in(folder), patch).status == 0
    return results(sweep_in(folder)), operations


def check(folder: Path, number: int, fault: str, numbers: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    """Launch with a fault, then launch again without one, and compare."""

    def act() -> int:
        let_fail(patch, fault, number)
        return launch(sweep_in(folder), patch).status

    in_child(act)
    sweep = sweep_in(folder)
    assert launch(sweep, patch).status == 0, f"{fault} at operation {number}"
    assert results(sweep) == numbers, f"{fault} at operation {number}"
    assert counted(sweep) == [], f"{fault} at operation {number}"


def run_all(unbroken: Unbroken, fault: str, most: int, root: Path, patch: pytest.MonkeyPatch) -> int:
    numbers, operations = unbroken
    possible = [number for number, name in enumerate(operations) if fault != "flip" or name == "read"]
    chosen = possible[:: max(1, len(possible) // most)]
    for number in chosen:
        check(root / f"{fault}-{number}", number, fault, numbers, patch)
    return len(chosen)


@pytest.mark.parametrize("fault", few(["kill", "flip", "ENOSPC"]))
def test_some_faults(unbroken: Unbroken, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_all(unbroken, fault, SOME, tmp_path, monkeypatch) >= SOME


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault(unbroken: Unbroken, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS in the environment says how many operations."""
    most = int(os.environ.get("FAULTS", "1000000"))
    assert run_all(unbroken, fault, most, tmp_path, monkeypatch) >= min(most, 100)
