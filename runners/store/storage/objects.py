"""Storage in a bucket: small files directly, and what a library writes or reads through a working copy.

A path of the store stands for the object of the same name. Under the path itself lies the working copy of a file that
this process has saved or fetched; it belongs to this process alone, and nobody else reads it.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from goal_core.basics.atomic import StorageError, perform, read_bytes, replace_with
from runners.store.storage.bucket import Bucket
from runners.store.storage.interface import ALIVE, Storage, Task, Written
from runners.store.storage.requests import RefusedError
from runners.store.storage.uploads import Uploads
from runners.store.storage.working_copies import WorkingCopies

T = TypeVar("T")
R = TypeVar("R")
_SIDE_BY_SIDE = 16


class ObjectStorage:
    """Files as objects of a bucket.

    Args:
        bucket: the bucket.
        prefix: what the keys of all objects begin with, without a slash at its end.
        base: the path that stands for the prefix.
        copies: the folder of this process's working copies, at or above ``base``.
    """

    def __init__(self, bucket: Bucket, prefix: str, base: Path, copies: WorkingCopies) -> None:
        self._bucket, self._base, self._copies = bucket, base, copies
        self._prefix = [prefix] if prefix else []
        self._uploads = Uploads()
        self._checked = False
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="goal-sweep asking")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="goal-sweep reading")
        self._asked: dict[Path, Future[bool]] = {}

    @property
    def is_waiting(self) -> bool:
        return self._uploads.is_waiting

    def key(self, path: Path) -> str:
        """The key of the object that a path stands for."""
        return "/".join([*self._prefix, *path.relative_to(self._base).parts])

    def _start(self, folder: Path) -> str:
        """What the keys of everything in a folder begin with."""
        key = self.key(folder)
        return f"{key}/" if key else ""

    def prepare(self, folders: Iterable[Path]) -> None:
        if not self._checked:
            self._bucket.check_conditions(self.key(self._base / f".check-{secrets.token_hex(4)}"))
            self._checked = True

    def make_folder(self, folder: Path) -> None:
        """Nothing: objects need no folder."""

    def shown(self, path: Path) -> str:
        return self._bucket.url(self.key(path))

    def read(self, path: Path) -> bytes | None:
        return self._bucket.get(self.key(path))

    def replace(self, path: Path, content: bytes, *, guard: Task | None = None) -> None:
        self._bucket.put(self.key(path), content, guard=guard)

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        try:
            self._bucket.put(self.key(path), content, new=True, guard=guard)
        except RefusedError:
            # A try whose answer was lost may have created it.
            return self.read(path) == content
        return True

    def written(self, path: Path) -> Written | None:
        return self._bucket.written(self.key(path))

    def exists(self, path: Path) -> bool:
        key = self.key(path)
        return any(one.key == key or one.key.startswith(f"{key}/") for one in self._bucket.list(key))

    def appeared(self, path: Path) -> bool:
        asked = self._asked.get(path)
        if asked is not None and not asked.done():
            return False
        self._asked[path] = self._asking.submit(self._bucket.appeared, self.key(path))
        return asked is not None and asked.result()

    def entries(self, folder: Path) -> list[Path]:
        kept = [folder / name.rstrip("/") for name in self._bucket.names(self._start(folder))]
        return list(dict.fromkeys([*kept, *self._on_their_way(folder)]))

    def listed(self, folder: Path) -> dict[Path, Written]:
        start = self._start(folder)
        found = ((one.key.removeprefix(start), one.written) for one in self._bucket.list(start))
        # A key can be any text. One with such parts is not a file of a store; used as a path, it would lead elsewhere.
        return {folder / name: written for name, written in found if not {"", ".", ".."} & set(name.split("/"))}

    def touch(self, path: Path) -> None:
        self._bucket.put(f"{self.key(path)}{ALIVE}", b"")

    def seen(self, path: Path) -> float:
        key = self.key(path)
        times = [one.written.modified_ns for one in self._bucket.list(key) if one.key in (key, f"{key}{ALIVE}")]
        return max(times, default=0) / 1e9

    def now(self, folder: Path) -> float:
        key = self.key(folder / f".clock-{secrets.token_hex(4)}")
        self._bucket.put(key, b"")
        try:
            written = self._bucket.written(key)
        finally:
            self._bucket.delete(key)
        if written is None:
            raise StorageError(f"cannot write {self._bucket.url(key)}: it is gone at once; does a rule remove it?")
        return written.modified_ns / 1e9

    def digest(self, path: Path) -> str:
        return self._bucket.digest(self.key(path))

    def remove(self, path: Path) -> None:
        self._bucket.delete(self.key(path))
        path.unlink(missing_ok=True)

    def rename(self, path: Path, target: Path) -> None:
        self._bucket.copy(self.key(path), self.key(target))
        self.remove(path)

    def move(self, folder: Path, target: Path, *, last: str = "") -> None:
        start, end = self._start(folder), self._start(target)
        keys = [one.key for one in self._bucket.list(start)]
        if not keys:
            raise FileNotFoundError(f"there is no {self.shown(folder)}")
        if next(iter(self._bucket.list(end)), None) is not None:
            raise FileExistsError(f"there is {self.shown(target)} already")
        for key in sorted(keys, key=lambda key: key == f"{start}{last}"):
            self._bucket.copy(key, end + key.removeprefix(start))
        self.remove_folder(folder, first=last)

    def remove_folder(self, folder: Path, *, first: str = "") -> None:
        start = self._start(folder)
        keys = [one.key for one in self._bucket.list(start)]
        for key in sorted(keys, key=lambda key: key != f"{start}{first}"):
            self._bucket.delete(key)

    def remove_leftovers(self, folder: Path) -> None:
        """Nothing: a write that fails leaves no object."""

    def is_leftover(self, path: Path) -> bool:
        return False

    def save_with(self, path: Path, write: Callable[[Path], None], *, guard: Task) -> None:
        self._uploads.wait(path.parent, path)
        self._make(path.parent)
        replace_with(path, write)

        def send() -> None:
            self._bucket.send(self.key(path), path, guard=guard)
            guard()

        self._uploads.add(path.parent, path, send)

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        own = path.with_name(f"{path.stem}.{writer}{path.suffix}")
        self._make(own.parent)

        def write() -> None:
            with own.open("ab") as file:
                file.write(content)

        perform("append", own, write, doing="write")

        def send() -> None:
            with contextlib.suppress(StorageError):  # a line of a log may be missing; a training must not fail for it
                self._bucket.put(self.key(own), read_bytes(own) or b"")

        self._uploads.add(own, own, send, once=True)

    def discard(self, path: Path, *, guard: Task) -> None:
        def remove() -> None:
            guard()
            with contextlib.suppress(StorageError):
                self.remove(path)

        self._uploads.add(path.parent, path, remove)

    def flush(self, folder: Path) -> None:
        for log in folder.glob("*.txt"):
            self._uploads.wait(log)
        self._uploads.wait(folder)

    def forget(self, folder: Path) -> None:
        self._uploads.forget(folder)

    def fetch(self, path: Path) -> Path:
        if path.exists():
            return path
        self._make(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            if perform("write", path, lambda: self._bucket.fetch(self.key(path), fresh), doing="write"):
                fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        self._uploads.wait_all()
        self._copies.remove()

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2:
            return [act(item) for item in items]
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="goal-sweep reading") as pool:
            return list(pool.map(act, items))

    def soon(self, act: Callable[[], R]) -> Future[R]:
        return self._reading.submit(act)

    def view(self, folder: Path) -> Storage:
        return FolderView(self, folder)

    def _on_their_way(self, folder: Path) -> list[Path]:
        """What this process has saved in a folder, as a listing that comes too early would miss it."""
        with contextlib.suppress(OSError):
            return [path for path in folder.iterdir() if path.is_file() and not path.name.endswith(".tmp")]
        return []

    def _make(self, folder: Path) -> None:
        self._copies.make()
        folder.mkdir(parents=True, exist_ok=True)


class FolderView(ObjectStorage):
    """A folder listed once: what is not there is not asked for."""

    def __init__(self, storage: ObjectStorage, folder: Path) -> None:
        vars(self).update(vars(storage))
        self._folder = folder

    @functools.cached_property
    def _known(self) -> dict[Path, Written]:
        return self.listed(self._folder)

    def read(self, path: Path) -> bytes | None:
        return None if self._is_known_absent(path) else super().read(path)

    def written(self, path: Path) -> Written | None:
        return self._known.get(path) if path.is_relative_to(self._folder) else super().written(path)

    def exists(self, path: Path) -> bool:
        if not path.is_relative_to(self._folder):
            return super().exists(path)
        return any(one.is_relative_to(path) for one in self._known)

    def entries(self, folder: Path) -> list[Path]:
        if not folder.is_relative_to(self._folder):
            return super().entries(folder)
        depth = len(folder.parts)
        kept = [Path(*one.parts[: depth + 1]) for one in self._known if folder in one.parents]
        return list(dict.fromkeys([*kept, *self._on_their_way(folder)]))

    def seen(self, path: Path) -> float:
        if not path.is_relative_to(self._folder):
            return super().seen(path)
        found = [self._known.get(one) for one in (path, path.with_name(f"{path.name}{ALIVE}"))]
        return max((one.modified_ns for one in found if one is not None), default=0) / 1e9

    def _is_known_absent(self, path: Path) -> bool:
        return path.is_relative_to(self._folder) and path not in self._known
