"""A finished and a killed sweep, which tests copy and damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.damage import stopped_after
from tests.helpers.in_process import launch, results, sweep_in


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a finished sweep, and its numbers."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert launch(sweep_in(folder), patch).status == 0
    return folder, results(sweep_in(folder))


@pytest.fixture
def sweep(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> OpenedSweep:
    """A copy of the finished sweep."""
    shutil.copytree(finished[0] / "store", tmp_path / "store")
    return sweep_in(tmp_path)


@pytest.fixture(scope="module")
def stopped_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was killed in the third epoch of 8 steps."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        stopped_after(sweep_in(folder), patch, 17)
    return folder


@pytest.fixture
def stopped(stopped_folder: Path, tmp_path: Path) -> OpenedSweep:
    """A copy of the killed sweep."""
    shutil.copytree(stopped_folder / "store", tmp_path / "store")
    return sweep_in(tmp_path)
