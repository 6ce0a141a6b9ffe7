"""Storage in folders: a local disk, or a network file system such as NFS."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from goal_core.basics import atomic
from goal_core.basics.atomic import StorageError, make_folder, perform
from runners.store.storage.interface import Storage, Task, Written

T = TypeVar("T")
R = TypeVar("R")


class LocalStorage:
    """Files in folders. Every write is whole and on the disk, or did not happen; see `goal_core.basics.atomic`."""

    is_waiting = False

    def prepare(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            if folder.parent.exists() and not os.access(folder.parent, os.W_OK):
                raise StorageError(
                    f"results folder {folder.parent} is read-only; make it writable, or give another --store"
                )
            make_folder(folder)

    def make_folder(self, folder: Path) -> None:
        make_folder(folder)

    def shown(self, path: Path) -> str:
        return str(path)

    def read(self, path: Path) -> bytes | None:
        return atomic.read_bytes(path)

    def replace(self, path: Path, content: bytes, *, guard: Task | None = None) -> None:
        atomic.replace_bytes(path, content, guard=guard)

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        return atomic.create_bytes(path, content, guard=guard)

    def written(self, path: Path) -> Written | None:
        try:
            stat = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Written(bytes=stat.st_size, modified_ns=stat.st_mtime_ns)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def appeared(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            # Opening the folder makes a network file system look for new files; a lookup by name may be remembered.
            return path.name in os.listdir(path.parent)
        return False

    def entries(self, folder: Path) -> list[Path]:
        def read() -> list[Path]:
            try:
                return [folder / name for name in os.listdir(folder)]
            except (FileNotFoundError, NotADirectoryError):
                return []

        return perform("list", folder, read)

    def listed(self, folder: Path) -> dict[Path, Written]:
        found = ((path, self.written(path)) for path in folder.rglob("*") if path.is_file())
        return {path: written for path, written in found if written is not None}

    def touch(self, path: Path) -> None:
        os.utime(path)

    def seen(self, path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def now(self, folder: Path) -> float:
        probe = folder / f".clock-{secrets.token_hex(4)}.tmp"

        def read() -> float:
            probe.touch()
            try:
                return probe.stat().st_mtime
            finally:
                probe.unlink(missing_ok=True)

        return perform("write", probe, read, doing="write")

    def digest(self, path: Path) -> str:
        def read() -> str:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()

        return perform("read", path, read)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        perform("rename", path, lambda: path.replace(target), doing="set aside")

    def move(self, folder: Path, target: Path, *, last: str = "") -> None:
        folder.rename(target)

    def remove_folder(self, folder: Path, *, first: str = "") -> None:
        if first:
            (folder / first).unlink(missing_ok=True)
        shutil.rmtree(folder)

    def remove_leftovers(self, folder: Path) -> None:
        atomic.remove_leftovers(folder)

    def is_leftover(self, path: Path) -> bool:
        return atomic.is_leftover(path)

    def save_with(self, path: Path, write: Callable[[Path], None], *, guard: Task) -> None:
        try:
            atomic.replace_with(path, write, guard=guard)
        except StorageError:
            # A successor may have moved or cleaned the folder; then the lost lease is the reason.
            guard()
            raise
        guard()

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        def write() -> None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, content)
            finally:
                os.close(descriptor)

        perform("append", path, write, doing="write")

    def discard(self, path: Path, *, guard: Task) -> None:
        guard()
        with contextlib.suppress(OSError):
            atomic.file_operation("remove", path)
            path.unlink(missing_ok=True)

    def flush(self, folder: Path) -> None:
        pass

    def forget(self, folder: Path) -> None:
        pass

    def fetch(self, path: Path) -> Path:
        return path

    def close(self) -> None:
        pass

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [act(item) for item in items]

    def soon(self, act: Callable[[], R]) -> Future[R]:
        done: Future[R] = Future()
        try:
            done.set_result(act())
        except Exception as error:
            done.set_exception(error)
        return done

    def view(self, folder: Path) -> Storage:
        return self


LOCAL = LocalStorage()
