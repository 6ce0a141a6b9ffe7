"""Where the artifacts of runs are, also after their results folder was copied or moved."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

SQLITE = "sqlite:///"


def database_file(tracking_uri: str) -> Path | None:
    """The file of a SQLite tracking database; None for any other tracking URI."""
    if not tracking_uri.startswith(SQLITE):
        return None
    return Path(tracking_uri.removeprefix(SQLITE).split("?")[0])


def artifact_place(tracking_uri: str, artifact_uri: str, kept: int = 3) -> str:
    """Where a run's artifacts are read and written.

    A SQLite database contains absolute addresses. In a copied or moved results folder they point into the original,
    but the artifacts lie beside the database, in ``artifacts/EXPERIMENT/RUN/artifacts``.

    Args:
        tracking_uri: MLflow tracking URI.
        artifact_uri: the run's address of its artifacts, as the database states it.
        kept: number of last parts of the address that stay: 3 for a run; 4 for a model, in ``EXPERIMENT/models/ID``.

    Returns:
        The same address, or the corrected one.
    """
    database, parts = database_file(tracking_uri), urlsplit(artifact_uri)
    if database is None or parts.scheme not in ("", "file") or not parts.path:
        return artifact_uri
    home, path = database.absolute().parent, Path(unquote(parts.path))
    if path.is_relative_to(home) or path.resolve().is_relative_to(home.resolve()):
        return artifact_uri
    return home.joinpath("artifacts", *path.parts[-kept:]).as_uri()
