"""The folder of one process for its working copies: what it has saved or fetched, which nobody else reads."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

from goal_core.basics.atomic import StorageError
from runners.store.processes import is_taken, machine_identity

_START = "goal-sweep-work"
SCRATCH = "GOAL_SWEEP_SCRATCH"
"""The environment variable that names another folder for them than that of temporary files."""


class WorkingCopies:
    """The folder, in that for temporary files or in ``GOAL_SWEEP_SCRATCH``; only its user may look inside."""

    def __init__(self) -> None:
        parent = Path(os.environ.get(SCRATCH) or tempfile.gettempdir()).absolute()
        self.folder = parent / f"{_START}-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"

    def make(self) -> None:
        """Make the folder, and remove those of processes that have ended without doing so.

        Raises:
            StorageError: it cannot be made.
        """
        if self.folder.exists():
            return
        _remove_abandoned(self.folder.parent)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot create {self.folder}, where files wait for upload: {error.strerror}; name another folder with "
                f"{SCRATCH}"
            ) from error
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_START}-{_machine()}-*-*"):
        match = re.fullmatch(rf"{_START}-{_machine()}-(\d+)-[0-9a-f]+", path.name)
        with contextlib.suppress(OSError):
            if match and path.stat().st_uid == os.getuid() and not is_taken(int(match[1])):
                shutil.rmtree(path, ignore_errors=True)


def _machine() -> str:
    return hashlib.sha256(machine_identity().encode()).hexdigest()[:8]
