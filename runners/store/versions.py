"""Versions of a training's files: each attempt writes files of its own, so no attempt can overwrite another's.

``best-3.safetensors`` of attempt 2 is ``best-3.2.safetensors``. While a training runs, the newest version counts; when
it is done, its result names the files that count. Plain names, of stores before version 0.2, count as attempt 0.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from goal_core.atomic import perform, read_bytes


def version_name(name: str, attempt: int) -> str:
    """The name of an attempt's version of a file."""
    stem, suffix = os.path.splitext(name)
    return f"{stem}.{attempt}{suffix}" if attempt else name


def versions(folder: Path, name: str) -> dict[int, Path]:
    """The versions of a file by attempt, the newest first; empty if there are none."""
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}(?:\.(\d+))?{re.escape(suffix)}")
    found = {int(match[1] or 0): path for path in entries(folder) if (match := pattern.fullmatch(path.name))}
    return dict(sorted(found.items(), reverse=True))


def entries(folder: Path) -> list[Path]:
    """What is in a folder; empty if there is no such folder.

    Raises:
        StorageError: it cannot be read.
    """

    def read() -> list[Path]:
        try:
            return [folder / name for name in os.listdir(folder)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    return perform("list", folder, read)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex.

    Raises:
        StorageError: it cannot be read.
    """

    def read() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return perform("read", path, read)


def fingerprint_of(path: Path) -> dict[str, Any]:
    """What a result states of a file: its name, size and content, and when it was written."""
    stat = path.stat()
    return {"name": path.name, "bytes": stat.st_size, "sha256": digest(path), "modified_ns": stat.st_mtime_ns}


def problems(
    folder: Path, files: Mapping[str, Mapping[str, Any]], *, thorough: bool, needed: Set[str] = frozenset()
) -> Iterator[str]:
    """Compare files with what the result states of them.

    Args:
        folder: the training's folder.
        files: by name, what `fingerprint_of` gave.
        thorough: read every file; otherwise only those that have changed since they were written.
        needed: names of the files that must be there.

    Yields:
        A line for each damaged or missing file.

    Raises:
        StorageError: a file cannot be read.
    """
    for name, stated in files.items():
        # Imported files have plain names.
        path = next((path for path in (folder / stated.get("name", name), folder / name) if path.exists()), None)
        if path is None:
            if name in needed:
                yield f"{folder / str(stated.get('name', name))} is missing"
            continue
        stat = path.stat()
        if stat.st_size != stated["bytes"]:
            yield f"{path} is damaged: it has {stat.st_size:,} bytes, not {stated['bytes']:,}"
        elif (thorough or stat.st_mtime_ns != stated.get("modified_ns")) and digest(path) != stated["sha256"]:
            yield f"{path} is damaged: its content does not match its checksum"


def is_whole_zip(path: Path) -> bool:
    """Whether a zip file (such as an ``.npz``) matches its own checksums; True if there is none."""
    content = read_bytes(path)
    if content is None:
        return True
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (zipfile.BadZipFile, ValueError):
        return False
