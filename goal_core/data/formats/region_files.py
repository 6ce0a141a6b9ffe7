"""Files of precomputed features, `*_ims.npy`: read through a memory map, written in parts.

An image has either R regions of F numbers or one vector of F numbers; arrays below write both as (N, ..., F).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import tokenize
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.basics.atomic import replace_bytes, storage_errors
from goal_core.basics.errors import DataError, MissingDataError, first_line
from goal_core.basics.sealed_json import json_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFile:
    """The header of a `*_ims.npy` file whose data is complete."""

    path: str
    shape: tuple[int, ...]
    """Images, then the shape of each image's features: (N, R, F) regions or (N, F) vectors."""
    dtype: str
    version: tuple[int, int]
    """Bytes and time of change (ns), which tell whether an open memory map still shows this file."""

    def mapped(self) -> NDArray[np.floating]:
        """The file's memory map, (N, ..., F), opened once in each process."""
        return _mapped(self)


@lru_cache(maxsize=16)
def _mapped(file: RegionFile) -> NDArray[np.floating]:
    mapped: NDArray[np.floating] = np.load(file.path, mmap_mode="r")
    return mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRows:
    """Reads images' features from a file; a :class:`~goal_core.data.dataset.RegionReader`."""

    file: RegionFile
    ids: tuple[str, ...]
    """Ids of the file's first images; later rows are not part of the split."""
    starts: tuple[int, ...] = ()
    """The first row of each image where the file repeats an image's row for each of its captions; else empty."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each image's features: (R, F) or (F,)."""
        return self.file.shape[1:]

    def __len__(self) -> int:
        return len(self.ids)

    def rows_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The file's row of each of some images, (B,)."""
        return np.array([self.starts[index] for index in indices], np.int64) if self.starts else indices

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of some images, (B, ..., F) float32.

        Raises:
            DataError: a number is not finite; the message names the image.
        """
        features = self.file.mapped()[self.rows_of(indices)].astype(np.float32, copy=False)
        finite = np.isfinite(features.reshape(len(features), -1)).all(axis=1)
        if not finite.all():
            image = int(indices[np.argmin(finite)])
            raise DataError(f"{'regions' if len(self.shape) > 1 else 'features'} of {self.label(image)} are not finite")
        return features

    def label(self, index: int) -> str:
        """The image's id and its row in the file."""
        row = self.starts[index] if self.starts else index
        return f"image {self.ids[index]} (row {row} of {self.file.path})"

    def first(self, num_images: int) -> Self:
        """A reader of the first rows only."""
        return replace(self, ids=self.ids[:num_images], starts=self.starts[:num_images])


def read_region_header(path: Path, axes: tuple[str, ...] = ("images", "regions", "features")) -> RegionFile:
    """Read the header of a `*_ims.npy` file, and check that all of its data is there.

    Args:
        path: the file.
        axes: what its axes are, in words.

    Raises:
        DataError: the file is missing, is not an npy file, is cut short, or does not contain floating point numbers
            with these axes.
    """
    try:
        stat = path.stat()
        with path.open("rb") as file:
            read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
            start = file.tell()
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, SyntaxError, tokenize.TokenError) as error:  # the header is a Python literal
        raise DataError(f"{path} is not an .npy file, or its header is cut short: {first_line(error)}") from error
    if dtype.kind != "f":
        raise DataError(f"{path} must contain floating point numbers, got {dtype}")
    if len(shape) != len(axes) or min(shape) < 1:
        raise DataError(f"{path} must have shape ({', '.join(axes)}), none of them 0; got {shape}")
    wanted = start + math.prod(shape) * dtype.itemsize
    if stat.st_size != wanted:
        state = "truncated" if stat.st_size < wanted else "longer than its header says"
        raise DataError(f"{path} is {state}: {stat.st_size} bytes instead of {wanted} for shape {shape} {dtype}")
    return RegionFile(path=str(path), shape=shape, dtype=np.dtype(dtype).str, version=(stat.st_size, stat.st_mtime_ns))


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
