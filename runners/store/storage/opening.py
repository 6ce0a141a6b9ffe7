"""Open a bucket as the storage of a store, once in a process, with a folder for this process's working copies."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import threading
from pathlib import Path

from goal_core.atomic import StorageError
from runners.store.processes import machine_identity
from runners.store.storage.bucket import Bucket
from runners.store.storage.objects import ObjectStorage
from runners.store.storage.requests import FIRST_S

_START = "goal-sweep-work"
_opening = threading.Lock()


def open_bucket(bucket: str, prefix: str, endpoint: str, patience: float | None) -> tuple[Path, ObjectStorage]:
    """Open a place in a bucket. Nothing is created before something is saved or fetched.

    Args:
        bucket: its name.
        prefix: what the keys of all objects begin with, without a slash at its end.
        endpoint: the server's address; empty for that of the environment.
        patience: seconds to wait for the server's first answer; None for those of a command.

    Returns:
        The path that stands for the prefix, and the storage.

    Raises:
        StorageError: s3fs is not installed.
    """
    with _opening:
        return _opened(bucket, prefix, endpoint, FIRST_S if patience is None else patience, os.getpid())


@functools.cache
def _opened(bucket: str, prefix: str, endpoint: str, first: float, pid: int) -> tuple[Path, ObjectStorage]:
    folder = Path(tempfile.gettempdir()) / f"{_START}-{_machine()}-{pid}-{secrets.token_hex(8)}"
    base = folder / bucket / prefix
    storage = ObjectStorage(Bucket(bucket, endpoint, first=first), prefix, base, functools.partial(_make, folder))
    return base, storage


def _make(folder: Path) -> None:
    """Make the folder of this process's working copies; only its user may look inside."""
    if folder.exists():
        return
    _remove_abandoned(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot create {folder}, where files wait for upload: {error.strerror}; name another folder with TMPDIR"
        ) from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the working copies of processes of this machine that have ended without doing so."""
    for path in parent.glob(f"{_START}-{_machine()}-*-*"):
        match = re.fullmatch(rf"{_START}-{_machine()}-(\d+)-[0-9a-f]+", path.name)
        with contextlib.suppress(OSError):
            if match and path.stat().st_uid == os.getuid() and not _runs(int(match[1])):
                shutil.rmtree(path, ignore_errors=True)


def _machine() -> str:
    return hashlib.sha256(machine_identity().encode()).hexdigest()[:8]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
