"""Storage in a bucket: small files directly, and what a library writes or reads through a working copy.

A path of the store stands for the object of the same name. Under the path itself lies the working copy of a file that
this process has saved or fetched; it belongs to this process alone, and nobody else reads it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from goal_sweep.goal_core.basics.atomic import StorageError, make_folder, perform, read_bytes, replace_with
from goal_sweep.runners.store.storage.connection import Connection, RefusedError, failure
from goal_sweep.runners.store.storage.folders import Storage, Task, Written

T = TypeVar("T")
R = TypeVar("R")
PART = 5 * 2**20
"""Bytes of a large object that travel in one request. The smallest that S3 allows."""
_SIDE_BY_SIDE = 16


class ObjectStorage(Storage):
    """Files as objects of a bucket.

    Args:
        base: the path that stands for it, in a folder of this process's own.
    """

    def __init__(self, connection: Connection, base: Path) -> None:
        import obstore

        self._api: Any = obstore
        self._connection, self._base = connection, base
        self._checked = False
        self._background = ThreadPoolExecutor(1, thread_name_prefix="goal-sweep reading")
        self._asked: dict[Path, Future[bool]] = {}

    def _key(self, path: Path) -> str:
        return "/".join(path.relative_to(self._base).parts)

    def _ask(self, doing: str, path: Path, act: Callable[[Any, str], T]) -> T:
        """Call a function with a client and the key of a path; see `Connection.ask`."""
        key = self._key(path)
        return self._connection.ask(doing, key, lambda client: act(client, key))

    def prepare(self, folders: Iterable[Path]) -> None:
        if self._checked:
            return
        probe = self._base / f".check-{secrets.token_hex(4)}"
        self.replace(probe, b"one")
        try:
            self._checked = not self.create(probe, b"two")
        finally:
            self.remove(probe)
        if not self._checked:
            raise StorageError(
                f"the server of {self.shown(self._base)} ignores conditional writes (If-None-Match), so nothing keeps "
                "two launches from training the same cell; use a server that honours them (AWS S3, MinIO, Ceph, ...), "
                "or a folder"
            )

    def make_folder(self, folder: Path) -> None:
        """Nothing: objects need no folder."""

    def shown(self, path: Path) -> str:
        return self._connection.url(self._key(path))

    def read(self, path: Path) -> bytes | None:
        content = io.BytesIO()
        return content.getvalue() if self._pass_on(path, content.write) else None

    def replace(self, path: Path, content: bytes) -> None:
        self._put(path, content)

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        if guard is not None:
            guard()
        try:
            self._put(path, content, mode="create")
        except RefusedError:
            # A try whose answer was lost may have created it.
            return self.read(path) == content
        return True

    def written(self, path: Path) -> Written | None:
        return self._in(path.parent).get(path)

    def entries(self, folder: Path) -> list[Path]:
        return list(self._in(folder))

    def files(self, folder: Path, *, below: bool = False) -> dict[Path, Written]:
        if not below:
            return {path: written for path, written in self._in(folder).items() if written is not None}

        def read(client: Any, key: str) -> list[Any]:
            return list(chain.from_iterable(self._api.list(client, key or None, chunk_size=1000)))

        found = ((self._base / each["path"], _written(each)) for each in self._ask("list", folder, read))
        return {path: written for path, written in found if path != folder}

    def appeared(self, path: Path) -> bool:
        asked = self._asked.get(path)
        if asked is not None and not asked.done():
            return False
        self._asked[path] = self._background.submit(super().appeared, path)
        return asked is not None and asked.result()

    def digest(self, path: Path) -> str:
        digest = hashlib.sha256()
        if not self._pass_on(path, digest.update):
            raise failure(errno.ENOENT, f"cannot read {self.shown(path)}: there is no such object")
        return digest.hexdigest()

    def remove(self, path: Path) -> None:
        self._ask("remove", path, self._api.delete)
        path.unlink(missing_ok=True)

    def save_with(self, path: Path, write: Callable[[Path], object], *, guard: Task) -> None:
        make_folder(path.parent)
        replace_with(path, write)
        try:
            guard()
            self._put(path, path)
        except BaseException:
            path.unlink(missing_ok=True)  # the working copy is never newer than the object
            raise
        guard()

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        own = path.with_name(f"{path.stem}.{writer}{path.suffix}")
        make_folder(own.parent)

        def write() -> None:
            with own.open("ab") as file:
                file.write(content)

        perform("append", own, write, doing="write")
        # A line of a log may be missing until the next one; a training must not fail for it.
        with contextlib.suppress(StorageError):
            self._put(own, read_bytes(own) or b"")

    def fetch(self, path: Path) -> Path:
        if path.exists():
            return path
        make_folder(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")

        def write() -> None:
            with fresh.open("wb") as file:
                is_there = self._pass_on(path, file.write)
            if is_there:
                fresh.replace(path)

        try:
            perform("write", path, write, doing="write")
        finally:
            fresh.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="goal-sweep reading") as pool:
            return list(pool.map(act, items))

    def _in(self, folder: Path) -> dict[Path, Written | None]:
        """What is right in a folder: files, and folders with None."""
        found = self._ask("list", folder, lambda client, key: self._api.list_with_delimiter(client, key or None))
        folders = {self._base / key: None for key in found["common_prefixes"]}
        files = {self._base / each["path"]: _written(each) for each in found["objects"]}
        return {path: written for path, written in {**folders, **files}.items() if path != folder}

    def _pass_on(self, path: Path, take: Callable[[bytes], object]) -> bool:
        """Pass on the content of an object, part by part; False if there is none."""

        def read(client: Any, key: str) -> None:
            for part in self._api.get(client, key).stream(PART):
                take(part)

        try:
            self._ask("read", path, read)
        except FileNotFoundError:
            return False
        return True

    def _put(self, path: Path, content: bytes | Path, mode: str = "overwrite") -> None:
        """Write an object, in parts if it is large, with all of its content or with that of a file."""
        how = {"mode": mode, "chunk_size": PART, "max_concurrency": 4}
        self._ask("write", path, lambda client, key: self._api.put(client, key, content, **how))


def _written(meta: Any) -> Written:
    since = meta["last_modified"] - datetime(1970, 1, 1, tzinfo=UTC)
    return Written(bytes=meta["size"], modified_ns=since // timedelta(microseconds=1) * 1000)
