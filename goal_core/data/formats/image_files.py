"""The image files that annotations name: found by listing folders, and read when they are needed."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data import images
from goal_core.data.formats.report import DataReport

WITH_FOLDER = ("", "images")
"""Where the folder of an image name is looked for, relative to the root: the root itself, then `images`."""
WITHOUT_FOLDER = ("images", "flickr30k-images", "flickr30k_images", "")
"""Where an image name without a folder is looked for, relative to the root, the root itself last."""
LINKED_DATA = "GOAL_LINKED_DATA"
"""Environment variable: folders outside the dataset's into which its links may lead, with ``:`` between them."""
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image file that exists."""

    path: str
    size: int
    """Bytes."""
    times: tuple[int, int]
    """When its content and its entry last changed, nanoseconds. A program can set the first back, not the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """Reads a split's images from their files; an :class:`~goal_core.data.dataset.ImageReader`."""

    paths: tuple[str, ...]
    stamp: str
    """Hash of the files' sizes and times."""

    @classmethod
    def of(cls, files: Sequence[ImageFile]) -> FileReader:
        """The reader of files that have been found."""
        digest = hashlib.sha256("".join(f"{file.size} {file.times}\n" for file in files).encode())
        return cls(paths=tuple(file.path for file in files), stamp=digest.hexdigest()[:16])

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Decode one file; see :func:`~goal_core.data.images.decode_image`."""
        return images.decode_image(self.paths[index])

    def label(self, index: int) -> str:
        """The file's path."""
        return self.paths[index]

    def first(self, num_images: int) -> Self:
        """A reader of the first files only."""
        return replace(self, paths=self.paths[:num_images])


def check_once(names: Mapping[str, Sequence[str]]) -> None:
    """Check that no image file is used twice, within a split or across splits.

    Raises:
        DataError: one is.
    """
    seen: dict[str, str] = {}
    for split, listed in names.items():
        for name in listed:
            if name in seen:
                raise DataError(f"image {name} is listed twice: in splits {seen[name]} and {split}")
            seen[name] = split


def find_images(root: Path, names: Iterable[str], report: DataReport) -> dict[str, ImageFile]:
    """Locate image files by listing each folder once; no image is opened.

    Several paths are tried for each folder (:data:`WITH_FOLDER`, :data:`WITHOUT_FOLDER`). The first that contains one
    of the folder's images is used for all of them. A link that leads out of the root is refused, unless it leads into
    one of the folders that `GOAL_LINKED_DATA` lists: a dataset may come from anybody, and its links could name any
    file of this machine.

    Args:
        root: folder of the dataset.
        names: path of each image, relative, with forward slashes.
        report: receives how many images each folder has; or that it is not found, lacks files, or has a link that leads
            out of the root.

    Returns:
        The files by name, without those of a folder in which something is wrong.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        folders[name.rpartition("/")[0]].append(name)
    files: dict[str, ImageFile] = {}
    for folder, listed in sorted(folders.items()):
        item = f"{folder}/" if folder else "images"
        there = report.attempt(item, partial(_files_in, root, folder, listed))
        if there is not None:
            size, place = sum(file.size for file in there.values()) / 1e9, os.path.dirname(there[listed[0]].path)
            report.note(item, "ok", f"{len(there):,} files, {size:.2f} GB in {place}")
            for file in (file for file in there.values() if not file.size):
                report.note(item, "wrong", f"image {file.path} is empty")
            files |= there
    return files


def _files_in(root: Path, folder: str, names: Sequence[str]) -> dict[str, ImageFile]:
    """The files of one folder, by name, from the first path that contains any of them."""
    paths = [root / parent / folder for parent in (WITH_FOLDER if folder else WITHOUT_FOLDER)]
    existing = [path for path in paths if path.is_dir()]
    if not existing:
        raise MissingDataError(f"image folder not found; looked for {', '.join(map(str, paths))}")
    name_of = {name.rpartition("/")[2]: name for name in names}
    there: dict[str, ImageFile] = {}
    for path in existing:
        try:
            with os.scandir(path) as entries:
                files = [entry for entry in entries if entry.name in name_of and entry.is_file()]
                if files:
                    _check_links(root, [str(path), *(file.path for file in files if file.is_symlink())])
                there = {name_of[file.name]: _image_file(file.path, file.stat()) for file in files}
        except OSError as error:
            raise DataError(f"cannot list image folder {path}: {error.strerror or error}") from error
        if there:
            break
    missing = [name for name in names if name not in there]
    if missing:
        more = ", ..." if len(missing) > _NAMES_SHOWN else ""
        shown = ", ".join(missing[:_NAMES_SHOWN])
        raise MissingDataError(f"{len(missing)} of {len(names)} images are missing under {root}: {shown}{more}")
    return there


def _image_file(path: str, status: os.stat_result) -> ImageFile:
    return ImageFile(path=path, size=status.st_size, times=(status.st_mtime_ns, status.st_ctime_ns))


def _check_links(root: Path, paths: Iterable[str]) -> None:
    """Check that paths below the root lie in it, or in a folder that `GOAL_LINKED_DATA` lists, with links followed."""
    listed = [folder for folder in os.environ.get(LINKED_DATA, "").split(os.pathsep) if folder]
    allowed = [Path(os.path.realpath(folder)) for folder in (str(root), *listed)]
    for path in paths:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder) for folder in allowed):
            raise DataError(
                f"{path} is a link to {real}, outside the folder of the dataset; if you trust it, add "
                f"{real if real.is_dir() else real.parent} to the environment variable {LINKED_DATA}"
            )
