"""The location of a store, as a user writes it: a folder, or ``s3://bucket/prefix``."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import urlsplit

from goal_sweep.goal_core.basics.atomic import StorageError, make_scratch_folder
from goal_sweep.runners.store.storage.folders import LOCAL, Storage

CACHE = "GOAL_SWEEP_CACHE"
"""The environment variable that names another folder than ``~/.cache/goal-sweep``."""
_opening = threading.Lock()


def opened(location: str, patience: float | None) -> tuple[Path, Storage]:
    """Where the paths of a store's files start, and what keeps them; see `Store`. Nothing is created."""
    if is_object_store(location):
        with _opening:
            return _bucket(*parse_url(location), patience, os.getpid())
    root = local_root(location)
    if root.exists() and not root.is_dir():
        raise StorageError(f"store {root} is a file, not a folder")
    return root, LOCAL


@functools.cache
def _bucket(bucket: str, prefix: str, patience: float | None, pid: int) -> tuple[Path, Storage]:
    """The path that stands for a place in a bucket, and its storage: one in each process."""
    from goal_sweep.runners.store.storage.connection import FIRST_S, Connection
    from goal_sweep.runners.store.storage.objects import ObjectStorage

    connection = Connection(bucket, prefix, first=FIRST_S if patience is None else patience)
    scratch = make_scratch_folder()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    base = scratch / bucket / prefix
    return base, ObjectStorage(connection, base)


def is_object_store(location: str) -> bool:
    """Whether a location is an object store. Raises `StorageError` where it is a URL of another kind."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", location)
    if scheme is None or scheme[1].lower() == "file":
        return False
    if scheme[1] != "s3":
        raise StorageError(
            f"store {location!r} must be a folder or s3://bucket/prefix; {scheme[1]}:// is not supported"
        )
    return True


def local_root(location: str) -> Path:
    """The folder of this machine that belongs to a store: the store itself if it is a folder, else one in the cache."""
    if not is_object_store(location):
        return Path(location.removeprefix("file://")).expanduser().absolute()
    bucket, prefix = parse_url(location)
    identity = hashlib.sha256(f"{bucket} {prefix}".encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{bucket}-{prefix}").strip("-")[:60]
    return cache_folder() / "stores" / f"{name}-{identity}"


def parse_url(location: str) -> tuple[str, str]:
    """The bucket, and the prefix without slashes at its ends. No server is named, because sweep files are passed on.

    Raises `StorageError` where it is not the URL of a place in a bucket.
    """
    parts = urlsplit(location)
    prefix = parts.path.strip("/")
    is_bucket = re.fullmatch(r"[A-Za-z0-9._-]+", parts.netloc) and not (parts.query or parts.fragment)
    if not (is_bucket and prefix.isprintable()) or (prefix and {"", ".", ".."} & set(prefix.split("/"))):
        raise StorageError(f"store {location!r} must be s3://bucket/prefix, and AWS_ENDPOINT_URL names its server")
    return parts.netloc, prefix


def cache_folder() -> Path:
    """The folder of this machine for what can be computed or fetched again."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(CACHE) or f"{cache}/goal-sweep").expanduser()
