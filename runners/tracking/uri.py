"""Where tracking goes: from what a sweep file says to a location that does not depend on the working directory."""

from __future__ import annotations

import re
from pathlib import Path

from goal_core.errors import GoalError

_SQLITE = "sqlite:///"
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
