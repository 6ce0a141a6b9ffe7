"""An undisturbed launch of the tiny sweep, in real processes with Ray. Whatever disturbs one must not change it."""

from pathlib import Path

import pytest

from tests.helpers.once import made_once
from tests.helpers.product import run, tiny_in


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of a finished launch, which no test may change."""

    def launch(folder: Path) -> None:
        done = run(tiny_in(folder), "launch", "tiny.yaml")
        (folder / "said").write_text(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once(tmp_path_factory, worker_id, "unbroken-tiny", launch)
