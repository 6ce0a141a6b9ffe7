"""An undisturbed launch, without Ray. Disturbed launches with Ray must end with the same numbers."""

from pathlib import Path

import pytest

from tests.helpers.in_process import without_ray
from tests.helpers.launches import goal_sweep_here, sweep_in
from tests.helpers.once import made_once


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a finished launch."""

    def launch(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            without_ray(patch)
            done = goal_sweep_here(sweep_in(folder), "launch", "tiny.yaml")
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once(tmp_path_factory, worker_id, "unbroken", launch)
