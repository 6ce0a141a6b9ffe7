"""What is made once for all processes of a test run, because it takes long."""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, worker_id: str, name: str, make: Callable[[Path], object]) -> Path:
    """A file or folder of this name, made by the first process that asks for it. Tests must not change it."""
    base = factory.getbasetemp()
    root = base if worker_id == "master" else base.parent
    made, finished = root / name, root / f"{name}.finished"
    with FileLock(root / f"{name}.lock"):
        if not finished.exists():
            make(made)
            finished.touch()
    return made
