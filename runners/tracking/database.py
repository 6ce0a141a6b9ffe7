"""The embedded tracking database as a file: created whole or not at all, and by one process."""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Callable
from pathlib import Path

from runners.tracking.uri import TrackingError, network_filesystem

_MAGIC = b"SQLite format 3\x00"


def prepare_database(path: Path, create: Callable[[Path], None]) -> None:
    """Make sure that a database is there.

    Several processes that create the tables of one SQLite file together leave a broken file, and so does one
    that is killed halfway. Here one process at a time creates it, under another name, and renames it.

    Args:
        path: the database file; its folder is made.
        create: creates a complete database at the path it is given, and lets go of it.

    Raises:
        TrackingError: the file is there but is no database, or its folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f"{path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_database(path):
                return
            for leftover in path.parent.glob(f"{path.name}.creating*"):
                leftover.unlink(missing_ok=True)
            # Never the same name twice: MLflow believes for the life of a process that a database it has made is there.
            fresh = path.with_name(f"{path.name}.creating-{uuid.uuid4().hex}")
            create(fresh)
            fresh.rename(path)
    except OSError as error:
        raise TrackingError(f"cannot create the tracking database {path}: {error.strerror or error}") from error


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        return False
    if head not in (b"", _MAGIC):
        raise TrackingError(f"{path} is not an SQLite database; move it away, and tracking is rebuilt from the store")
    return bool(head)


def network_warning(path: Path) -> str:
    """What to tell a user whose database is on a network file system; empty when it is not."""
    kind = network_filesystem(path)
    if not kind:
        return ""
    return (
        f"the tracking database {path} is on a network file system ({kind}), where SQLite may lock up or break; "
        "set tracking to a local file or a server (the store may stay where it is)"
    )


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that takes its name; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
