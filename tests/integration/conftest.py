"""An undisturbed launch. Disturbed launches must end with the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.launches import goal_sweep, sweep_in


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = sweep_in(tmp_path_factory.mktemp("unbroken") / "run")
    done = goal_sweep(folder, "launch", "tiny.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
