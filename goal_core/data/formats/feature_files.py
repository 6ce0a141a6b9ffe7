"""Write files of precomputed features, `*_ims.npy`, part by part."""

from __future__ import annotations

import fcntl
import io
import math
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.basics.atomic import storage_errors
from goal_core.basics.errors import DataError


class FeatureFile:
    """Writes (N, ..., F) float32 in parts to a hidden file, and continues where a killed writer stopped.

    Each part is on the disk before the next is begun, so at most the last one is torn, and it is written again. Use it
    as a context manager: leaving it without an error and with all N rows written gives the file its name.

    Args:
        path: the final name; its folder exists.
        shape: (N, R, F) or (N, F).
        key: identifies the rows; rows with a different key are discarded.
        part: rows that are appended at a time; the last part may have fewer.

    Raises:
        DataError: another process is writing this file.
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], key: str, *, part: int) -> None:
        self._path, self._shape, self._part = path, shape, part
        self._row_bytes = 4 * math.prod(shape[1:])
        self._partial = path.with_name(f".{path.name}.{key}-{'x'.join(map(str, shape))}.partial")
        self.num_rows = 0
        """Rows written so far, by this process and by those before it."""

    def __enter__(self) -> Self:
        with storage_errors(self._path, "write"):
            for other in self._path.parent.glob(f".{self._path.name}.*.partial"):
                if other != self._partial:
                    other.unlink(missing_ok=True)
            self._file = self._locked()
            try:
                self._continue()
            except BaseException:
                self._file.close()
                raise
        return self

    def _continue(self) -> None:
        """Keep the parts that are certainly whole."""
        header = io.BytesIO()
        npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": self._shape})
        start, there = header.tell(), os.fstat(self._file.fileno()).st_size
        parts = max(0, there - start) // (self._part * self._row_bytes)
        self.num_rows = self._part * max(0, parts - 1)
        self._file.write(header.getvalue())
        self._file.truncate(self._file.seek(start + self.num_rows * self._row_bytes))

    def append(self, rows: NDArray[np.float32]) -> None:
        """Append a part, (B, ..., F) float32; it is on the disk when this returns."""
        end = self.num_rows + len(rows)
        if rows.shape[1:] != self._shape[1:] or end > self._shape[0]:
            raise ValueError(f"rows {rows.shape} do not fit {self._shape} after {self.num_rows}")
        with storage_errors(self._path, "write"):
            self._file.write(np.ascontiguousarray(rows, "<f4").data)
            self._file.flush()
            os.fsync(self._file.fileno())
        self.num_rows = end

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None and self.num_rows == self._shape[0]:
                with storage_errors(self._path, "write"):
                    self._partial.replace(self._path)

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
