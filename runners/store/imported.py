"""The mark of a result that an import added, beside the result.

Its numbers were computed elsewhere and cannot be verified here: whoever changes a number can change its digest too. So
wherever an imported result is shown, it says where it came from.
"""

from __future__ import annotations

import time
from pathlib import Path

from goal_core.basics.atomic import DamagedError, storage_errors
from goal_core.basics.sealed_json import json_bytes
from runners.store.storage import LOCAL, Storage, read_json

MARK = "imported.json"


def mark_content(archive: str, sha256: str) -> bytes:
    """The content of the mark.

    Args:
        archive: name of the archive's file.
        sha256: digest of the archive's file, in hex.
    """
    return json_bytes({"archive": archive, "sha256": sha256, "imported": time.time()})


def imported_from(folder: Path, storage: Storage = LOCAL) -> str:
    """The archive that a training's result came from, as ``name (sha256 digest)``; empty if it was trained here.

    A damaged mark is still a mark.

    Raises:
        StorageError: the mark cannot be read.
    """
    try:
        content = read_json(storage, folder / MARK)
    except DamagedError:
        content = {}
    if content is None:
        return ""
    return f"{content.get('archive', 'an archive')} (sha256 {content.get('sha256', 'unknown')})"


def remove_mark(folder: Path, storage: Storage = LOCAL) -> None:
    """Remove the mark, before a result of this store's own training takes the place of an imported one.

    Raises:
        StorageError: it cannot be removed.
    """
    with storage_errors(folder / MARK, "remove"):
        storage.remove(folder / MARK)
