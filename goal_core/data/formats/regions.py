"""Precomputed regions: `*_ims.npy` files read through a memory map, with the captions beside them.

Source: the layout of SCAN (Lee et al. 2018) as VSE-infinity reads it; there the whole file goes into memory.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_core.data.config import RegionsConfig
from goal_core.data.fingerprint import fingerprint_of
from goal_core.data.formats.caption_files import CaptionFiles, precomp_folder, read_caption_files, split_files
from goal_core.data.split import SPLIT_NAMES, Split, split_of
from goal_core.errors import DataError

_SAMPLED_ROWS = 32
"""Rows of each file that are looked at before training; all of COCO's would be 33 GB to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFile:
    """The header of a `*_ims.npy` file whose data is complete."""

    path: str
    shape: tuple[int, int, int]
    """Images, regions of each, numbers of each region: (N, R, F)."""
    dtype: str
    version: tuple[int, int]
    """Bytes and time of change (ns): whether a map that is open already still shows this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRows:
    """Reads images' regions from a file; a :class:`~goal_core.data.split.RegionReader`."""

    file: RegionFile
    ids: tuple[str, ...]
    """Of the file's first images; those after are not part of the split."""

    @property
    def shape(self) -> tuple[int, int]:
        """Regions of each image and numbers of each region, (R, F)."""
        return self.file.shape[1:]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.ids)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Regions of some images, (B, R, F) float32.

        Raises:
            DataError: a number is not finite; the message names the image.
        """
        regions = _mapped(self.file)[indices].astype(np.float32, copy=False)
        finite = np.isfinite(regions).all(axis=(1, 2))
        if not finite.all():
            image = int(indices[np.argmin(finite)])
            raise DataError(f"regions of {self.label(image)} are not finite")
        return regions

    def label(self, index: int) -> str:
        """The image's id and its row in the file."""
        return f"image {self.ids[index]} (row {index} of {self.file.path})"


def load_regions(config: RegionsConfig) -> tuple[dict[str, Split], str]:
    """Read captions and ids, check them against the headers of the region files, and build the splits.

    The fingerprint covers captions, ids, shapes, and 32 evenly spread images of each file.

    Returns:
        The splits train, val and test, and the fingerprint.

    Raises:
        DataError: a file is missing, cut short or of another layout, files do not fit each other, an image is listed
            twice, or the splits' features differ in shape. One line that says which.
    """
    folder = precomp_folder(Path(config.root).expanduser())
    words = split_files(config.test_file)
    files = {name: read_region_header(folder / f"{words[name]}_ims.npy") for name in SPLIT_NAMES}
    check_same_shape(list(files.values()))
    texts = {name: read_caption_files(folder, words[name], files[name].shape[0]) for name in SPLIT_NAMES}
    texts["val"] = texts["val"].first(config.max_val_images)
    check_apart({name: RegionRows(file=files[name], ids=texts[name].ids) for name in SPLIT_NAMES})
    described = (record for name in SPLIT_NAMES for record in _described(name, files[name], texts[name]))
    fingerprint = fingerprint_of(None, config.min_word_count, described)
    return {name: _split(name, files[name], texts[name]) for name in SPLIT_NAMES}, fingerprint


def read_region_header(path: Path) -> RegionFile:
    """Read what a `*_ims.npy` file holds, and check that all of it is there.

    Raises:
        DataError: the file is missing, no npy file, cut short, not of floating point, or not (N, R, F).
    """
    try:
        stat = path.stat()
        with path.open("rb") as file:
            read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
            start = file.tell()
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, SyntaxError, tokenize.TokenError) as error:  # the header is a Python literal
        raise DataError(f"{path} is no npy file, or its header is cut short: {str(error).splitlines()[0]}") from error
    if dtype.kind != "f":
        raise DataError(f"{path} must hold floating point numbers, got {dtype}")
    if len(shape) != 3 or min(shape) < 1:
        raise DataError(f"{path} must have shape (images, regions, features), none of them 0; got {shape}")
    wanted = start + math.prod(shape) * dtype.itemsize
    if stat.st_size != wanted:
        state = "truncated" if stat.st_size < wanted else "longer than its header says"
        raise DataError(f"{path} is {state}: {stat.st_size} bytes instead of {wanted} for shape {shape} {dtype}")
    return RegionFile(path=str(path), shape=shape, dtype=np.dtype(dtype).str, version=(stat.st_size, stat.st_mtime_ns))


def check_same_shape(files: list[RegionFile]) -> None:
    """Check that the regions of all splits fit one model.

    Raises:
        DataError: features are of different width.
    """
    for file in files[1:]:
        if file.shape[2] != files[0].shape[2]:
            raise DataError(
                f"{file.path} has features of {file.shape[2]} numbers, but {files[0].path} of {files[0].shape[2]}"
            )


def check_apart(splits: Mapping[str, RegionRows]) -> None:
    """Check that no image is in two splits under one id.

    Equal ids alone do not tell, for some files count from 0 in each split; so one of the first :data:`_SAMPLED_ROWS`
    equal ids must have equal regions too.

    Raises:
        DataError: an image is in two splits under one id.
    """
    for (first, one), (second, other) in itertools.combinations(splits.items(), 2):
        places = {name: row for row, name in enumerate(one.ids)}
        both = [(places[name], row, name) for row, name in enumerate(other.ids) if name in places]
        for here, there, name in both[:_SAMPLED_ROWS]:
            if np.array_equal(_mapped(one.file)[here], _mapped(other.file)[there]):
                raise DataError(
                    f"image {name} is listed twice: in splits {first} and {second}, with the same regions"
                    + (f"; {len(both)} ids are in both" if len(both) > 1 else "")
                )


def _split(name: str, file: RegionFile, texts: CaptionFiles) -> Split:
    return split_of(name, texts.captions, RegionRows(file=file, ids=texts.ids))


def _described(name: str, file: RegionFile, texts: CaptionFiles) -> list[object]:
    spread = np.unique(np.linspace(0, file.shape[0] - 1, _SAMPLED_ROWS).astype(np.int64))
    sample = np.ascontiguousarray(_mapped(file)[spread])
    header = [name, list(file.shape), file.dtype, hashlib.sha256(sample.tobytes()).hexdigest()]
    return [header, *([name, image, captions] for image, captions in zip(texts.ids, texts.captions, strict=True))]


@lru_cache(maxsize=16)
def _mapped(file: RegionFile) -> NDArray[np.floating]:
    """The file's memory map, opened once in each process."""
    mapped: NDArray[np.floating] = np.load(file.path, mmap_mode="r")
    return mapped
