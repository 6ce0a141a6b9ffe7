"""An undisturbed launch. Disturbed launches must end with the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from tests.helpers.launches import goal_sweep, sweep_in


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a finished launch, which all processes of a test run share."""
    base = tmp_path_factory.getbasetemp()
    root = base if worker_id == "master" else base.parent
    folder, finished = root / "unbroken", root / "unbroken.finished"
    with FileLock(root / "unbroken.lock"):
        if not finished.exists():
            done = goal_sweep(sweep_in(folder), "launch", "tiny.yaml")
            assert done.returncode == 0, done.stdout + done.stderr
            finished.touch()
    return folder
