"""Where the files of a store are kept: in a folder of this machine or its network, or in a bucket of an object store.

The rest of `runners.store` reads and writes through a `Storage`, so nothing else asks which of the two it is. What a
store asks of any storage is here, as folders do it; `runners.store.bucket` has the other.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError, perform
from goal_sweep.goal_core.basics.errors import ConfigError, UnfinishedError
from goal_sweep.goal_core.basics.files import parse_json
from goal_sweep.sweeps.identity import from_mapping

T = TypeVar("T")
R = TypeVar("R")
Task = Callable[[], object]
PATIENCE_S = 300.0
"""Seconds that a launch waits for a storage that does not answer."""


class ExpiredCredentialsError(StorageError, UnfinishedError):
    """The credentials for the storage worked, and do not any more. With others, the same command continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How a file was last written."""

    bytes: int
    modified_ns: int
    """Nanoseconds since 1970 by the clock of the storage, as exact as it states them."""


class Storage:
    """Keeps files under paths. Every write is whole and on the disk, or did not happen (`goal_core.basics.atomic`).

    Every method raises `StorageError` if the storage fails, also after it was tried again for a while.
    """

    def prepare(self, folders: Iterable[Path]) -> None:
        """Make folders that can be written, and check that the storage keeps what a store relies on."""
        for folder in folders:
            if folder.parent.exists() and not os.access(folder.parent, os.W_OK):
                raise StorageError(
                    f"results folder {folder.parent} is read-only; make it writable, or give another --store"
                )
            self.make_folder(folder)

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, where files need one."""
        atomic.make_folder(folder)

    def shown(self, path: Path) -> str:
        """A path as a user knows it."""
        return str(path)

    def read(self, path: Path) -> bytes | None:
        """The content of a file; None if there is none."""
        return atomic.read_bytes(path)

    def replace(self, path: Path, content: bytes) -> None:
        """Write a file in one step."""
        atomic.replace_bytes(path, content)

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        """As `replace`, but never replaces a file. Returns whether this call created it; of several exactly one does.

        `guard` is called right before, and may raise to give up.
        """
        return atomic.create_bytes(path, content, guard=guard)

    def written(self, path: Path) -> Written | None:
        """How a file was last written; None if there is none."""
        try:
            stat = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Written(bytes=stat.st_size, modified_ns=stat.st_mtime_ns)

    def entries(self, folder: Path) -> list[Path]:
        """The files and folders in a folder; empty if there is no such folder."""

        def read() -> list[Path]:
            try:
                return [folder / name for name in os.listdir(folder)]
            except (FileNotFoundError, NotADirectoryError):
                return []

        return perform("list", folder, read)

    def files(self, folder: Path, *, below: bool = False) -> dict[Path, Written]:
        """The files in a folder, or also those below it, and how each was last written."""
        found = folder.rglob("*") if below else self.entries(folder)
        files = ((path, self.written(path)) for path in found if path.is_file())
        return {path: written for path, written in files if written is not None}

    def appeared(self, path: Path) -> bool:
        """Whether a file of another process is there. Never waits: the answer may be that of the call before."""
        with contextlib.suppress(StorageError):
            # Opening the folder makes a network file system look for new files; a lookup by name may be remembered.
            return path in self.entries(path.parent)
        return False

    def seen(self, path: Path) -> float:
        """When a file was last written, in seconds since 1970; 0 if there is none."""
        written = self.written(path)
        return 0.0 if written is None else written.modified_ns / 1e9

    def now(self, folder: Path) -> float:
        """The time of the storage's clock, which dates its files, in seconds since 1970."""
        probe = folder / f".clock-{secrets.token_hex(4)}.tmp"
        self.replace(probe, b"")
        try:
            written = self.written(probe)
        finally:
            self.remove(probe)
        if written is None:
            raise StorageError(f"cannot write {self.shown(probe)}: it is gone at once; does a rule remove it?")
        return written.modified_ns / 1e9

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file, in hex."""

        def read() -> str:
            with atomic.open_file(path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()

        return perform("read", path, read)

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""
        atomic.before_operation("remove", path)
        path.unlink(missing_ok=True)

    def save_with(self, path: Path, write: Callable[[Path], object], *, guard: Task) -> None:
        """Let a library write a file, whose whole content `write` writes to the path that it is given.

        `guard` is called right before the file takes its place, and may raise to give up.
        """
        atomic.replace_with(path, write, guard=guard)

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        """Add to the end of a file. Where files cannot grow, each writer, by number, has one of its own."""

        def write() -> None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, content)
            finally:
                os.close(descriptor)

        perform("append", path, write, doing="write")

    def fetch(self, path: Path) -> Path:
        """A file of this machine with the content of a file, for a library; it does not exist if the other does not."""
        return path

    def close(self) -> None:
        """Remove what this process keeps on its machine for the storage."""

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function that reads a little for each of many items, side by side where reading takes long."""
        return [act(item) for item in items]


LOCAL = Storage()


def read_json(storage: Storage, path: Path) -> dict[str, Any] | None:
    """As `goal_core.basics.files.read_json`, from a storage."""
    content = storage.read(path)
    return None if content is None else parse_json(content, storage.shown(path))


def read_record(storage: Storage, path: Path, kind: type[T]) -> T | None:
    """As `read_json`, for a file that holds the fields of a dataclass."""
    content = read_json(storage, path)
    try:
        return None if content is None else from_mapping(kind, content)
    except ConfigError as error:
        raise DamagedError(f"{storage.shown(path)} is damaged: {error}") from error
