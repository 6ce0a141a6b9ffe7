"""A folder of this user alone, for programs that open what they make in it to everybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from goal_core.basics.errors import GoalError


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else may enter, or check that it is one.

    Args:
        path: the folder.

    Raises:
        GoalError: another user has made it, or it is not a folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()  # a link could lead into a folder of somebody else
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise GoalError(f"{path} belongs to another user, and Ray's files are to lie there; remove it") from None
        path.chmod(0o700)
    return path
