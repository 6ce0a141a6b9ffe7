"""Write files of precomputed features, `*_ims.npy`, part by part."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.basics.atomic import replace_bytes, storage_errors
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import json_bytes


class FeatureFile:
    """Writes (N, ..., F) float32 in parts to a hidden file, and continues where a killed writer stopped.

    A note next to the hidden file records how many rows are safely on the disk; the rest of the file does not count.
    Use it as a context manager: leaving it without an error and with all N rows written gives the file its name.

    Args:
        path: the final name; its folder exists.
        shape: (N, R, F) or (N, F).
        key: identifies the rows; rows with a different key are discarded.

    Raises:
        DataError: another process is writing this file.
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], key: str) -> None:
        self._path, self._shape, self._key = path, shape, key
        self._partial = path.with_name(f".{path.name}.partial")
        self._note = path.with_name(f".{path.name}.partial.json")
        self.num_rows = 0
        """Rows written so far, by this process and by those before it."""

    def __enter__(self) -> Self:
        with storage_errors(self._path, "write"):
            self._file = self._locked()
            try:
                self._rows = self._mapped()
                size = self._rows.offset + self._rows.nbytes
                self._file.truncate(size)
                if hasattr(os, "posix_fallocate"):  # absent on macOS
                    # Reserve the whole file now: writing to a memory map of a full disk kills the process.
                    os.posix_fallocate(self._file.fileno(), 0, size)
            except BaseException:
                self._file.close()
                raise
        return self

    def append(self, rows: NDArray[np.float32]) -> None:
        """Append images, (B, ..., F) float32; they are on the disk when this returns."""
        end = self.num_rows + len(rows)
        if rows.shape[1:] != self._shape[1:] or end > self._shape[0]:
            raise ValueError(f"rows {rows.shape} do not fit {self._shape} after {self.num_rows}")
        with storage_errors(self._path, "write"):
            self._rows[self.num_rows : end] = rows
            self._rows.flush()
            self.num_rows = end
            replace_bytes(self._note, json_bytes({"key": self._key, "shape": self._shape, "rows": end}, indent=None))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.num_rows == self._shape[0]:
                with storage_errors(self._path, "write"):
                    os.fsync(self._file.fileno())
                    self._partial.replace(self._path)
                    self._note.unlink(missing_ok=True)
        finally:
            del self._rows
            self._file.close()

    def _locked(self) -> BinaryIO:
        """The hidden file, created if necessary, locked against other writers."""
        file = open(self._partial, "r+b", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o666))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the opening and the lock another writer may have given this very file its final name.
            ours = os.fstat(file.fileno()).st_ino == self._partial.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            file.close()
            raise DataError(f"another process is writing {self._path}")
        return file

    def _mapped(self) -> np.memmap[Any, np.dtype[np.float32]]:
        """The rows of a killed writer if its note matches them, otherwise those of a new file."""
        there = self._partial.stat().st_size
        with suppress(FileNotFoundError, ValueError):  # no note, or one that is damaged, or no rows
            noted = json.loads(self._note.read_text())
            rows = npy.open_memmap(self._partial, mode="r+")
            fits = (noted["key"], noted["shape"], rows.shape) == (self._key, list(self._shape), self._shape)
            if fits and there >= rows.offset + noted["rows"] * rows[0].nbytes:
                self.num_rows = noted["rows"]
                return rows
        self._note.unlink(missing_ok=True)  # before the rows it describes become zeros
        return npy.open_memmap(self._partial, mode="w+", dtype="<f4", shape=self._shape)
