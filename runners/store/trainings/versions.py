"""Versions of a training's files: each attempt writes files of its own, so no attempt can overwrite another's.

``best-3.safetensors`` of attempt 2 is ``best-3.2.safetensors``. While a training runs, the newest version counts; when
it is done, its result names the files that count.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from goal_core.basics.atomic import StorageError, read_bytes
from runners.store.storage.folders import LOCAL, Storage

WORKING = re.compile(r"(?:last(?:-spare)?|best-\d+|metrics|triplets|ranks)\.(\d+)\.(?:safetensors|jsonl|npz)")
"""Files of an attempt (group 1) that it needs while it trains."""

_NO_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
"""What reading a damaged zip file raises, as the bit that flipped."""


def version_name(name: str, attempt: int) -> str:
    """The name of an attempt's version of a file."""
    stem, suffix = os.path.splitext(name)
    return f"{stem}.{attempt}{suffix}"


def versions(folder: Path, name: str, storage: Storage = LOCAL) -> list[Path]:
    """The versions of a file by different attempts, the newest first; a file that all share, such as a log, is last."""
    stem, suffix = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}(?:\.(\d+))?{re.escape(suffix)}")
    matches = ((pattern.fullmatch(path.name), path) for path in storage.entries(folder))
    return [path for _, path in sorted(((int(match[1] or 0), path) for match, path in matches if match), reverse=True)]


def fingerprint_of(path: Path, storage: Storage = LOCAL) -> dict[str, Any]:
    """What a result states of a file: its name, size and content, and when it was written.

    Raises:
        StorageError: it cannot be read, or is not there.
    """
    written = storage.written(path)
    if written is None:
        raise StorageError(f"cannot read {storage.shown(path)}: it is gone")
    sha256 = LOCAL.digest(storage.fetch(path))
    return {"name": path.name, "bytes": written.bytes, "sha256": sha256, "modified_ns": written.modified_ns}


def problems(
    folder: Path,
    files: Mapping[str, Mapping[str, Any]],
    storage: Storage = LOCAL,
    *,
    thorough: bool,
    needed: Set[str] = frozenset(),
) -> Iterator[str]:
    """Compare files with what the result states of them.

    Args:
        folder: the training's folder.
        files: by name, what `fingerprint_of` gave.
        storage: what keeps them.
        thorough: read every file; otherwise only those that have changed since they were written.
        needed: names of the files that must be there.

    Yields:
        A line for each damaged or missing file.

    Raises:
        StorageError: a file cannot be read.
    """
    for name, stated in files.items():
        path = folder / stated["name"]
        written, shown = storage.written(path), storage.shown(path)
        if written is None:
            if name in needed:
                yield f"{shown} is missing"
        elif written.bytes != stated["bytes"]:
            yield f"{shown} is damaged: it has {written.bytes:,} bytes, not {stated['bytes']:,}"
        elif thorough or written.modified_ns != stated["modified_ns"]:
            if storage.digest(path) != stated["sha256"]:
                yield f"{shown} is damaged: its content does not match its checksum"


def is_whole_zip(path: Path) -> bool:
    """Whether a zip file (such as an ``.npz``) matches its own checksums; True if there is none."""
    content = read_bytes(path)
    if content is None:
        return True
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return file.testzip() is None
    except _NO_ZIP:
        return False
