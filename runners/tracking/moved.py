"""Artifact addresses in the tracking database of a results folder that was copied or moved.

MLflow stores absolute addresses. In a copy they are those of the original, where nothing may be written. The artifacts
of a database always lie beside it, in ``artifacts/EXPERIMENT/RUN/artifacts``, so each address can be corrected.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runners.tracking.uri import sqlite_file

_ADDRESSES = (
    # Table, its key, its column of addresses, and the number of last parts of an address that stay as they are.
    ("experiments", "experiment_id", "artifact_location", 1),
    ("runs", "run_uuid", "artifact_uri", 3),
    ("logged_models", "model_id", "artifact_location", 4),
)
_OURS = """
    SELECT experiment_id FROM experiment_tags WHERE key = 'goal.sweep'
    UNION SELECT experiment_id FROM runs JOIN tags USING (run_uuid) WHERE tags.key = 'goal.role'
"""
_WAIT_S = 20.0


def correct_addresses(database: Path) -> int:
    """Let every artifact address of the sweeps in a database point into the folder that holds the database.

    Addresses of artifact servers and object stores stay, and so do those of experiments that are not sweeps.

    Args:
        database: a complete tracking database.

    Returns:
        Number of corrected addresses.

    Raises:
        sqlite3.Error: the database cannot be read or written.
    """
    home, corrected = database.parent.absolute(), 0
    with closing(sqlite3.connect(database, timeout=_WAIT_S)) as connection, connection:
        for table, key, column, kept in _ADDRESSES:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                continue  # a database of an older MLflow
            of_sweeps = f"SELECT {key}, {column} FROM {table} WHERE experiment_id IN ({_OURS})"
            rows = connection.execute(of_sweeps).fetchall()
            changes = [(new, row) for row, old in rows if (new := _at_home(old or "", home, kept)) != (old or "")]
            connection.executemany(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", changes)
            corrected += len(changes)
    return corrected


def correct_moved(uri: str) -> None:
    """Correct the addresses in the database of a tracking URI, if it is a SQLite file that exists."""
    database = sqlite_file(uri)
    if database is not None and database.is_file() and database.stat().st_size:
        correct_addresses(database)


def _at_home(address: str, home: Path, kept: int) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("", "file") or not parts.path:
        return address
    path = Path(unquote(parts.path))
    # A folder has several names where symbolic links lead to it; all of them are right.
    if path.is_relative_to(home) or path.resolve().is_relative_to(home.resolve()):
        return address
    return home.joinpath("artifacts", *path.parts[-kept:]).as_uri()
