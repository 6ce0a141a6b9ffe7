"""Finds the image files that annotations name, without opening any."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.data.images.transforms import decode_image
from goal_core.errors import DataError

WITH_FOLDER = ("", "images")
"""Where a record's `filepath` folder is looked for, relative to the root: the root itself, then `images`."""
WITHOUT_FOLDER = ("images", "flickr30k-images", "flickr30k_images", "")
"""Where images are looked for when the record has no `filepath`, relative to the root, the root itself last."""
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image file that exists."""

    path: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reads a split's images from their files; an :class:`~goal_core.data.split.ImageReader`."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.paths)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Decode one file; see :func:`~goal_core.data.images.transforms.decode_image`."""
        return decode_image(self.paths[index])

    def label(self, index: int) -> str:
        """The file's path."""
        return self.paths[index]


def find_images(root: Path, names: Sequence[tuple[str, str]]) -> list[ImageFile]:
    """Locate image files by listing each folder once.

    Of the places where a folder may be (:data:`WITH_FOLDER`, :data:`WITHOUT_FOLDER`) the first that holds one of the
    folder's images is taken, for all of them.

    Args:
        root: folder of the dataset.
        names: (folder or an empty string, file name) of each image, with forward slashes, relative.

    Returns:
        One entry per name, in order.

    Raises:
        DataError: a folder is in none of the places, or files are missing; the message counts them and names a few.
    """
    wanted: dict[str, list[int]] = defaultdict(list)
    for index, (folder, _) in enumerate(names):
        wanted[folder].append(index)
    found: list[ImageFile | None] = [None] * len(names)
    for folder, indices in wanted.items():
        for index, file in zip(indices, _files_in(root, folder, [names[index][1] for index in indices]), strict=True):
            found[index] = file
    missing = [index for index, file in enumerate(found) if file is None]
    if missing:
        shown = ", ".join("/".join(filter(None, names[index])) for index in missing[:_NAMES_SHOWN])
        more = ", ..." if len(missing) > _NAMES_SHOWN else ""
        raise DataError(f"{len(missing)} of {len(names)} images are missing under {root}: {shown}{more}")
    return [file for file in found if file is not None]


def _files_in(root: Path, folder: str, file_names: list[str]) -> list[ImageFile | None]:
    """The named files of one folder, from the first place that holds any of them."""
    places = [root / place / folder for place in WITH_FOLDER] if folder else [root / place for place in WITHOUT_FOLDER]
    existing = [place for place in places if place.is_dir()]
    if not existing:
        raise DataError(f"image folder not found; looked for {', '.join(map(str, places))}")
    names = set(file_names)
    for place in existing:
        sizes = _sizes(place, names)
        if sizes:
            start = os.path.join(place, "")
            return [ImageFile(path=start + name, size=sizes[name]) if name in sizes else None for name in file_names]
    return [None] * len(file_names)


def _sizes(folder: Path, names: set[str]) -> dict[str, int]:
    """Bytes of those of ``names`` that are files in ``folder``."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.name in names and entry.is_file()}
    except OSError as error:
        raise DataError(f"cannot list image folder {folder}: {error.strerror or error}") from error
