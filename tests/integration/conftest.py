"""An undisturbed launch. Disturbed launches must end with the same numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.helpers.launches import command, sweep_in
from tests.helpers.once import made_once


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a finished launch. Its reader took one line of the output and closed the pipe."""
    return made_once(tmp_path_factory, worker_id, "unbroken", _launch)


def _launch(folder: Path) -> None:
    launch = subprocess.Popen(
        command("launch", "tiny.yaml"),
        cwd=sweep_in(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launch.stdout is not None
    assert launch.stderr is not None
    assert launch.stdout.readline()
    launch.stdout.close()
    said = launch.stderr.read()
    assert launch.wait(timeout=800) == 0, said
