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
_PREFIX = "goal-sweep-work-"


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
    remove_left_behind(parent, _PREFIX)
    try:
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{process_tag()}-", dir=parent))
    except OSError as error:
        raise StorageError(
            f"cannot create a folder in {parent} for temporary files: {error.strerror}; name another with {SCRATCH}"
        ) from error


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove this user's folders of processes that have ended; after the prefix their names have the process's tag."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            tag = re.match(r"[0-9a-f]+-\d+", path.name.removeprefix(prefix))
            if tag and has_ended(tag[0]) and path.lstat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
