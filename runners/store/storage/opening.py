"""Open a bucket as the storage of a store, once in a process."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path

from runners.store.storage.bucket import Bucket
from runners.store.storage.objects import ObjectStorage
from runners.store.storage.requests import FIRST_S
from runners.store.storage.working_copies import WorkingCopies

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
    copies = WorkingCopies()
    base = copies.folder / bucket / prefix
    return base, ObjectStorage(Bucket(bucket, endpoint, first=first), prefix, base, copies)
