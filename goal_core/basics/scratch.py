"""Folders for temporary files, which do not outlive their command by more than until the next one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.machine import has_ended, process_tag

SCRATCH: Final = "GOAL_SWEEP_SCRATCH"
"""The environment variable that names another folder than that for temporary files."""
_NAME = re.compile(r"goal-sweep-work-([0-9a-f]+-\d+)-\w+")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end; see :func:`make_scratch_folder`."""
    folder = make_scratch_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_scratch_folder() -> Path:
    """Make a folder for this user alone, which the caller removes.

    Those of processes that have ended without doing so are removed now.

    Raises:
        StorageError: it cannot be made.
    """
    parent = Path(os.environ.get(SCRATCH) or tempfile.gettempdir()).absolute()
    for path in parent.glob("goal-sweep-work-*"):
        with suppress(OSError):
            match = _NAME.fullmatch(path.name)
            if match and has_ended(match[1]) and path.stat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=f"goal-sweep-work-{process_tag()}-", dir=parent))
    except OSError as error:
        raise StorageError(
            f"cannot create a folder in {parent} for temporary files: {error.strerror}; name another with {SCRATCH}"
        ) from error
