"""A `*_ims.npy` file that is written bit by bit, survives being killed, and has its name only when it is whole."""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.errors import DataError


class FeatureFile:
    """Writes (N, R, F) float32 row by row under a hidden name, and goes on where a killed writer stopped.

    Beside the hidden file a note says how many rows are safely on the disk; what lies behind them is cut off. Use as
    a context manager: leaving it without an error and with all N rows written puts the file in place.

    Args:
        path: the final name; its folder exists.
        shape: (N, R, F).
        key: what the rows are; rows of another key are thrown away, not continued.

    Raises:
        DataError: another process is writing this file, or the disk refuses.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], key: str) -> None:
        self._path, self._shape, self._key = path, shape, key
        self._partial = path.with_name(f".{path.name}.partial")
        self._note = path.with_name(f".{path.name}.partial.json")
        self._row_bytes = shape[1] * shape[2] * 4
        header = io.BytesIO()
        npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        self._header = header.getvalue()
        self.num_rows = 0
        """Rows written so far, by this process and by those before it."""

    def __enter__(self) -> FeatureFile:
        with self._errors():
            # Opening to append makes the file where there is none and leaves one that is there.
            self._file = open(self._partial, "ab+")
            try:
                self._lock()
                self.num_rows = self._rows_noted()
                self._file.truncate(len(self._header) + self.num_rows * self._row_bytes if self.num_rows else 0)
                if not self.num_rows:
                    self._file.write(self._header)
            except BaseException:
                self._file.close()
                raise
        return self

    def append(self, rows_BRF: NDArray[np.float32]) -> None:
        """Add images after those that are there, (B, R, F) float32; they are on the disk when this returns."""
        if rows_BRF.shape[1:] != self._shape[1:] or self.num_rows + len(rows_BRF) > self._shape[0]:
            raise ValueError(f"rows {rows_BRF.shape} do not fit {self._shape} after {self.num_rows}")
        with self._errors():
            self._file.write(np.ascontiguousarray(rows_BRF, dtype="<f4").tobytes())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.num_rows += len(rows_BRF)
            fresh = self._note.with_name(f"{self._note.name}.new")
            fresh.write_text(json.dumps({"key": self._key, "shape": self._shape, "rows": self.num_rows}))
            fresh.replace(self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.num_rows == self._shape[0]:
                with self._errors():
                    os.fsync(self._file.fileno())
                    self._partial.replace(self._path)
                    self._note.unlink(missing_ok=True)
        finally:
            self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the opening and the lock another writer may have put the very same file in place.
            ours = os.fstat(self._file.fileno()).st_ino == self._partial.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise DataError(f"another process is writing {self._path}")

    def _rows_noted(self) -> int:
        try:
            noted = json.loads(self._note.read_text())
        except (FileNotFoundError, ValueError):
            return 0
        if noted.get("key") != self._key or noted.get("shape") != list(self._shape):
            return 0
        rows = int(noted["rows"])
        # A note without its rows (somebody removed the hidden file) counts for nothing.
        return rows if self._partial.stat().st_size >= len(self._header) + rows * self._row_bytes else 0

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(f"cannot write {self._path}: {error.strerror or error}") from error
