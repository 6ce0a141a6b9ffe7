"""What a store asks of the place that keeps its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from goal_core.basics.sealed_json import parse_json

T = TypeVar("T")
R = TypeVar("R")
Task = Callable[[], None]
ALIVE = ".alive"
"""Ends the name of a file beside another, whose time says when the other was last touched."""
PATIENCE_S = 300.0
"""Seconds that a launch waits for a storage that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How a file was last written."""

    bytes: int
    modified_ns: int
    """Nanoseconds since 1970 by the clock of the storage, as exact as it states them."""


class Storage(Protocol):
    """Keeps files under paths. In an object store, a path stands for an object.

    Every method raises `StorageError` if the storage fails, also after it was tried again for a while.
    """

    def prepare(self, folders: Iterable[Path]) -> None:
        """Make folders that can be written, and check that the storage keeps what a store relies on."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, where files need one."""

    def shown(self, path: Path) -> str:
        """A path as a user knows it."""

    def read(self, path: Path) -> bytes | None:
        """The content of a file; None if there is none.

        Raises:
            DamagedError: it is not what was written, as far as the storage can tell.
        """

    def replace(self, path: Path, content: bytes, *, guard: Task | None = None) -> None:
        """Write a file in one step. ``guard`` is called right before, and may raise to give up."""

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        """As `replace`, but never replaces a file; of several processes exactly one succeeds.

        Returns:
            Whether this call created it.
        """

    def written(self, path: Path) -> Written | None:
        """How a file was last written; None if there is none."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file, or a folder with something in it."""

    def appeared(self, path: Path) -> bool:
        """Whether a file of another process is there. Never waits: the answer may be that of the call before."""

    def entries(self, folder: Path) -> list[Path]:
        """The files and folders in a folder; empty if there is no such folder."""

    def listed(self, folder: Path) -> dict[Path, Written]:
        """All files in a folder and in those within it."""

    def touch(self, path: Path) -> None:
        """Give a sign of life that `seen` shows; the content stays."""

    def seen(self, path: Path) -> float:
        """When a file was last written or touched, in seconds since 1970; 0 if there is none."""

    def now(self, folder: Path) -> float:
        """The time of the storage's clock, which dates its files, in seconds since 1970."""

    def digest(self, path: Path) -> str:
        """The SHA-256 of a file, in hex."""

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name, in place of what has that name."""

    def move(self, folder: Path, target: Path, *, last: str = "") -> None:
        """Give a folder another name, which must be free.

        Args:
            folder: the folder.
            target: its new path.
            last: the file without which the folder means nothing. Where a move takes several steps, this file leaves
                first and arrives last.

        Raises:
            FileNotFoundError: there is no such folder.
            FileExistsError: something has the new name.
        """

    def remove_folder(self, folder: Path, *, first: str = "") -> None:
        """Remove a folder with all that is in it, the file ``first`` before the others."""

    def remove_leftovers(self, folder: Path) -> None:
        """Remove what writes of dead processes left in a folder."""

    def is_leftover(self, path: Path) -> bool:
        """Whether a file is what a write of a dead process left."""

    def save_with(self, path: Path, write: Callable[[Path], None], *, guard: Task) -> None:
        """Let a library write a file. It may arrive in the storage later; see `flush`.

        Args:
            path: the file.
            write: writes the whole content to the path that it is given.
            guard: called before and after the file takes its place; may raise to give up. Where that happens later,
                the next call for a file in the same folder raises instead.
        """

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        """Add to the end of a file.

        Args:
            path: the file.
            content: to add.
            writer: a number that no other process uses for this file. Where files cannot grow, each writer has one of
                its own, with the number in its name.
        """

    def discard(self, path: Path, *, guard: Task) -> None:
        """Remove a file after everything that was saved before in its folder has arrived, as `save_with` does."""

    def flush(self, folder: Path) -> None:
        """Wait until everything that was saved in a folder has arrived, and raise what went wrong meanwhile."""

    def forget(self, folder: Path) -> None:
        """Forget what went wrong in a folder in the background, because another attempt begins there."""

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for a storage that does not answer, or is slow."""

    def fetch(self, path: Path) -> Path:
        """A file of this machine with the content of a file, for a library. It may be damaged, as the other may be.

        Returns:
            A path that does not exist if there is no such file.
        """

    def close(self) -> None:
        """Remove what this process keeps on its machine for the storage, after everything has arrived."""

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function that reads a little for each of many items, side by side where reading takes long."""

    def soon(self, act: Callable[[], R]) -> Future[R]:
        """Call a function that reads; where reading takes long, in the background, one such call after the other."""

    def view(self, folder: Path) -> Storage:
        """A storage for reading several files of one folder now, with fewer requests where those take long."""


def read_json(storage: Storage, path: Path) -> dict[str, Any] | None:
    """As `goal_core.basics.sealed_json.read_json`, from a storage."""
    content = storage.read(path)
    return None if content is None else parse_json(content, storage.shown(path))
