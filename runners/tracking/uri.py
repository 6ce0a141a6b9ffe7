"""Where tracking goes: the URI with absolute paths, and the embedded database as a file."""

from __future__ import annotations

import fcntl
import re
import uuid
from collections.abc import Callable
from pathlib import Path

from goal_core.errors import GoalError

_SQLITE = "sqlite:///"
_MAGIC = b"SQLite format 3\x00"
_SERVERS = ("http", "https", "postgresql", "mysql", "mssql", "databricks")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "fuse.sshfs", "9p")


class TrackingError(GoalError):
    """Tracking cannot work as it is set up; waiting will not help."""


def resolve_uri(uri: str, store: Path) -> str:
    """The tracking URI with every path absolute.

    Args:
        uri: as in the sweep file; ``{store}`` stands for the store's folder.
        store: the store's folder, absolute.

    Raises:
        TrackingError: MLflow cannot use such a location, or should not.
    """
    text = uri.replace("{store}", str(store))
    if text.startswith(_SQLITE):
        path = text[len(_SQLITE) :]
        if not path or ":memory:" in path:
            raise TrackingError(f"tracking {uri!r}: a database in memory is gone when the launch ends; name a file")
        return _SQLITE + str(Path(path).expanduser().absolute())
    scheme = re.match(r"([a-z]+)(\+[a-z0-9]+)?:(//|$)|databricks$", text)
    if scheme and (scheme[1] in _SERVERS or text == "databricks"):
        return text
    raise TrackingError(
        f"tracking {uri!r} is not supported: give a database (sqlite:////path/mlflow.db, postgresql://...) "
        "or a server (http://host:5000); MLflow's folders of files (mlruns) are on their way out"
    )


def sqlite_file(uri: str) -> Path | None:
    """The database file of a resolved URI, or None when it is not SQLite."""
    return Path(uri[len(_SQLITE) :]) if uri.startswith(_SQLITE) else None


def network_filesystem(path: Path) -> str:
    """The kind of network file system that a path is on (`nfs4`, `lustre`), or an empty string.

    SQLite's locks do not work reliably across one. Knows Linux; elsewhere the answer is always empty.
    """
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts.splitlines():
        _, mount, system, *_ = line.split(" ")
        point = mount.replace("\\040", " ").rstrip("/")
        if (f"{path}/".startswith(f"{point}/")) and len(point) >= len(best):
            best, kind = point, system
    return kind if kind in _NETWORK else ""


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
