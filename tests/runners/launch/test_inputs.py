"""A worker trains nothing with other code, data or weights than the ids of its trainings state."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.objectives import triplet_weights
from goal_sweep.runners.execution import job as inputs
from goal_sweep.runners.launch.launch import LaunchOutcome
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.in_process import counted, launch, results, sweep_in
from tests.helpers.paths import ROOT


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    return sweep_in(tmp_path)


def check_refused(sweep: OpenedSweep, outcome: LaunchOutcome, what: str) -> None:
    """Nothing was trained or counted, and the reason names the machine."""
    assert outcome.status == 75
    reasons = {outcome.progress[training].reason for training in sweep.by_stage[0]}
    assert len(reasons) == 1
    assert what in min(reasons)
    assert socket.gethostname() in min(reasons)
    assert results(sweep) == {}
    assert counted(sweep) == []


def test_other_data_are_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(config: DataConfig, *indexes: Path, **options: Any) -> Dataset:
        return replace(open_dataset(config), fingerprint="another")

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_dataset", stale)
        check_refused(sweep, launch(sweep, patch), "the data (another, not")
    assert launch(sweep, monkeypatch).status == 0


def test_other_code_is_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("goal_sweep.runners.launch.loop.CODE_DIGEST", "the driver's")
        check_refused(sweep, launch(sweep, patch), "has other code of goal-sweep")
    assert launch(sweep, monkeypatch).status == 0


def test_other_weights_are_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "initial_weights_id", lambda model: "sha256:other")
        check_refused(sweep, launch(sweep, patch), "the first weights (sha256:other, not random)")


def test_another_objective_of_the_same_name_is_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep.cells  # the ids are computed with the code of the driver
    with monkeypatch.context() as patch:
        entry = triplet_weights["con"]
        changed = replace(entry, function=lambda triplets, **named: triplets.neg)
        patch.setitem(triplet_weights, "con", changed)
        check_refused(sweep, launch(sweep, patch), "the code of con/con")


def test_an_error_while_the_data_are_compared_is_waited_for_and_never_skips_the_comparison(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "RETRY_DELAYS", (0, 0))
    errors = [OSError(errno.ESTALE, "Stale file handle")] * 2

    def passing(config: DataConfig, *indexes: Path, **options: Any) -> Dataset:
        if errors:
            raise errors.pop()
        return open_dataset(config)

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_dataset", Mock(side_effect=OSError(errno.ESTALE, "Stale file handle")))
        outcome = launch(sweep, patch)
        assert outcome.status == 75
        assert all("Stale file handle" in outcome.progress[one].reason for one in sweep.by_stage[0])
        assert results(sweep) == {}
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_dataset", passing)
        assert launch(sweep, patch).status == 0
    assert not errors


def test_the_digest_changes_with_the_name_and_the_content_of_a_source_file(tmp_path: Path) -> None:
    hashes = set()
    for name, content in [("a.py", "x = 1"), ("a.py", "x = 2"), ("b.py", "x = 2")]:
        folder = tmp_path / f"{name}-{content[-1]}"
        folder.mkdir()
        (folder / name).write_text(content)
        hashes.add(inputs.source_hash([folder]))
    assert len(hashes) == 3


def test_the_digest_is_of_the_code_that_was_loaded(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "goal_sweep", tmp_path / "goal_sweep", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import pathlib
from goal_sweep.runners.execution import job as inputs
before = inputs.CODE_DIGEST
path = pathlib.Path("goal_sweep/goal_core/training/cells/optim.py")
path.write_text(path.read_text() + "CHANGED = True\\n")
print(before == inputs.CODE_DIGEST)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    commands = [
        [sys.executable, "-c", script],
        [sys.executable, "-c", "from goal_sweep.runners.execution import job as i; print(i.CODE_DIGEST)"],
    ]
    said = [
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    assert said[0] == "True\n"
    assert said[1].strip() != inputs.CODE_DIGEST
