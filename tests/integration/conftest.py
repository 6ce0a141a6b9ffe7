"""An undisturbed launch. Disturbed launches must end with the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.launches import goal_sweep, sweep_in
from tests.helpers.once import made_once


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a finished launch."""
    return made_once(tmp_path_factory, worker_id, "unbroken", _launch)


def _launch(folder: Path) -> None:
    done = goal_sweep(sweep_in(folder), "launch", "tiny.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
