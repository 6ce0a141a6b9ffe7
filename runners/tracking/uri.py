"""The location of tracking: the URI with absolute paths, and the SQLite database as a file."""

import fcntl
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from goal_sweep.goal_core.basics.errors import GoalError

_SQLITE, _QUOTED = "sqlite:///", "sqlite+pysqlite:///"
_MAGIC = b"SQLite format 3\x00"
_SERVERS = ("http", "https", "postgresql", "mysql", "mssql", "databricks")


class TrackingError(GoalError):
    """Tracking cannot work with its current settings; waiting does not help."""


def resolve_uri(uri: str, store: Path) -> str:
    """Make the paths of a tracking URI absolute. Raises `TrackingError` where the location is not supported.

    Args:
        store: the store's folder, absolute, which replaces ``{store}``.
    """
    text = uri.replace("{store}", _quoted(store))
    path = text.removeprefix(_QUOTED).removeprefix(_SQLITE)
    if path not in ("", text) and ":memory:" not in path and "?" not in path:
        return sqlite_uri(Path(unquote(path)).expanduser().absolute())
    scheme = re.match(r"([a-z]+)(\+[a-z0-9]+)?:(//|$)|databricks$", text)
    if scheme and (scheme[1] in _SERVERS or text == "databricks"):
        return text
    raise TrackingError(
        f"tracking {uri!r} is not supported: give a database (sqlite:////path/mlflow.db, postgresql://...) "
        "or a server (http://host:5000); folders of files (mlruns) are deprecated in MLflow"
    )


def sqlite_uri(file: Path) -> str:
    """The URI of a database file, as SQLAlchemy reads it.

    A path with signs that mean something there is quoted, and its URI names the driver: without that, MLflow makes the
    folder that the quoted path would name.
    """
    quoted = _quoted(file)
    return (_SQLITE if quoted == str(file) else _QUOTED) + quoted


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3F")


def sqlite_file(uri: str) -> Path | None:
    """The database file of a resolved URI, or None if it is not SQLite."""
    path = uri.removeprefix(_QUOTED).removeprefix(_SQLITE)
    return None if path == uri else Path(unquote(path))


def read_only(uri: str) -> str:
    """Why nothing can be written to a tracking URI, in one line; empty if it is a server or can be written."""
    path = sqlite_file(uri)
    if path is None or not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return ""
    return f"the tracking database {path} is read-only; make {path.parent} writable, or copy it and use the copy"


def require_database(uri: str) -> None:
    """Raises `TrackingError` where the database of a sweep that is tracked in a file is missing, or is none."""
    path = sqlite_file(uri)
    if path is not None and not (path.is_file() and _is_database(path)):
        raise TrackingError(f"no tracking database at {path}; launch the sweep first, or give its --store")


def prepare_database(path: Path, create: Callable[[Path], None]) -> None:
    """Create the database unless it exists.

    Processes that create the tables of one SQLite file at the same time leave a broken file, and so does a process that
    is killed while creating them. So one process at a time creates the file under another name, and then renames it.

    Args:
        create: creates a complete database at the given path and closes it.
    """
    if why := read_only(sqlite_uri(path)):
        raise TrackingError(why)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f"{path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_database(path):
                return
            for leftover in path.parent.glob(f"{path.name}.creating*"):
                leftover.unlink(missing_ok=True)
            # Use a new name each time: within one process, MLflow assumes that a database it has created still exists.
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
        raise TrackingError(f"{path} is not an SQLite database; move it away to have tracking rebuilt from the store")
    return bool(head)
