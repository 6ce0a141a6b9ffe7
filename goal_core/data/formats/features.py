"""Files of precomputed features, `*_ims.npy`, read through a memory map.

An image has either R regions of F numbers or one vector of F numbers; arrays below write both as (N, ..., F).
"""

from __future__ import annotations

import hashlib
import math
import tokenize
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.basics.errors import DataError, MissingDataError, first_line

VECTOR_AXES: Final = ("images", "features")
REGION_AXES: Final = ("images", "regions", "features")
BLOCK = 4096
"""Rows that are read at a time."""
_SAMPLED_IMAGES = 32
"""Images of a file of regions that are read before training; reading all of COCO's would take 33 GB."""


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

    def first_vectors(self, indices: NDArray[np.int64]) -> NDArray[np.floating]:
        """The vectors of some images, or their first regions, (B, F) as they are stored."""
        mapped, rows = self.file.mapped(), self.rows_of(indices)
        return mapped[rows] if mapped.ndim == 2 else mapped[rows, 0]

    def described(self) -> list[object]:
        """What a fingerprint covers of them: shape, type, and every vector, or the regions of 32 images."""
        return [len(self), list(self.shape), self.file.dtype, _digest(self)]


@lru_cache(maxsize=16)
def _digest(rows: RegionRows) -> str:
    """SHA-256 of the features of images, spread evenly where reading all would take too long."""
    chosen, digest = np.arange(len(rows)), hashlib.sha256()
    if len(rows.shape) > 1:
        chosen = np.unique(np.linspace(0, len(rows) - 1, _SAMPLED_IMAGES).astype(np.int64))
    for start in range(0, len(chosen), BLOCK):
        block = rows.file.mapped()[rows.rows_of(chosen[start : start + BLOCK])]
        digest.update(np.ascontiguousarray(block).tobytes())
    return digest.hexdigest()


def read_region_header(path: Path, axes: tuple[str, ...]) -> RegionFile:
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
