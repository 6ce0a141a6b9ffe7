"""The image files that annotations name: found by listing folders, and read and decoded when they are needed."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError, MissingDataError, first_line
from goal_sweep.goal_core.basics.user_files import opened, stamp_of
from goal_sweep.goal_core.data.formats.layout import check_links
from goal_sweep.goal_core.data.formats.report import DataReport

WITH_FOLDER = ("", "images")
"""Where the folder of an image name is looked for, relative to the root: the root itself, then `images`."""
WITHOUT_FOLDER = ("images", "flickr30k-images", "flickr30k_images", "")
"""Where an image name without a folder is looked for, relative to the root, the root itself last."""
MOST_FOLDERS = 12
"""Which a report of the data lists one by one."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats of images that are read. Pillow knows others, of which some start programs, whatever a file is called."""
MAX_PIXELS = 89_000_000
"""Of an image: a small file may unpack to more than the memory holds."""
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # of more pixels, which are refused


@dataclass(frozen=True, slots=True, eq=False)
class FileReader:
    """Reads a split's images from their files; an :class:`~goal_core.data.dataset.ImageReader`."""

    root: str
    """The folder below which the files lie."""
    paths: Sequence[str]
    """Of each image, relative to it."""
    digests: NDArray[np.uint8]
    """SHA-256 of each image's bytes, (N, 32)."""
    spans: NDArray[np.int64] | None = None
    """Where each image begins in its file, and its bytes, (N, 2); None where each has a file of its own."""

    def __len__(self) -> int:
        return len(self.paths)

    def content(self, index: int) -> tuple[bytes, list[int]]:
        """The bytes of an image as they are now, and the stamp that its file had when it was opened."""
        try:
            with opened(self.label(index)) as file:
                stamp = stamp_of(file.fileno())
                begin, size = (0, stamp[0]) if self.spans is None else map(int, self.spans[index])
                return os.pread(file.fileno(), size, begin), stamp
        except DataError as error:
            raise ChangedDataError(str(error)) from error

    def read(self, index: int) -> NDArray[np.uint8]:
        """Decode one image; see :func:`decode_image`."""
        (content, _), path = self.content(index), self.label(index)
        if hashlib.sha256(content).digest() != self.digests[index].tobytes():
            raise ChangedDataError(f"image {path} is not the one that was indexed; if it is right now, touch it")
        return decode_image(content, path)

    def fresh(self, indices: Sequence[int]) -> tuple[bytes, list[list[int]], list[str]]:
        """SHA-256 of some images as they are now, together; their files' stamps; a line for each not decodable one."""
        digests, stamps, problems = [], [], []
        for index in indices:
            content, stamp = self.content(index)
            digests.append(hashlib.sha256(content).digest())
            stamps.append(stamp)
            try:
                decode_image(content, self.label(index))
            except DataError as error:
                problems.append(str(error))
        return b"".join(digests), stamps, problems

    def label(self, index: int) -> str:
        """The file's path."""
        return os.path.join(self.root, self.paths[index])


def find_images(root: Path, pictures: Mapping[str, Sequence[str]], report: DataReport) -> dict[str, str]:
    """The file of each image by its name, relative to the root, found by listing each folder once; none is opened.

    Several paths are tried for each folder (:data:`WITH_FOLDER`, :data:`WITHOUT_FOLDER`). The first that contains one
    of the folder's images is used for all of them.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    times = Counter(chain.from_iterable(pictures.values()))
    for name in times:
        folders[name.rpartition("/")[0]].append(name)
    for name in [name for name, number in times.items() if number > 1][:1]:
        splits = [split for split, names in pictures.items() if name in names]
        report.note("images", "wrong", f"image {name} is listed twice, in {' and '.join(splits)}")
    files: dict[str, str] = {}
    for folder, listed in sorted(folders.items()):
        item = f"{folder}/" if folder else "images"
        if there := report.attempt(item, partial(_files_in, root, folder, listed)):
            if len(folders) <= MOST_FOLDERS:
                report.note(item, "ok", f"{len(there):,} files in {root / os.path.dirname(there[listed[0]])}")
            files |= there
    if len(folders) > MOST_FOLDERS:
        report.note("images", "ok", f"{len(files):,} files in {len(folders):,} folders of {root}")
    return files


def _files_in(root: Path, folder: str, names: Sequence[str]) -> dict[str, str]:
    """The files of one folder, by name, from the first path that contains any of them."""
    paths = [root / parent / folder for parent in (WITH_FOLDER if folder else WITHOUT_FOLDER)]
    existing = [path for path in paths if path.is_dir()]
    if not existing:
        raise MissingDataError(f"image folder not found; looked for {', '.join(map(str, paths))}")
    name_of = {name.rpartition("/")[2]: name for name in names}
    there: dict[str, str] = {}
    for path in existing:
        try:
            with os.scandir(path) as entries:
                files = [entry for entry in entries if entry.name in name_of and entry.is_file()]
        except OSError as error:
            raise DataError(f"cannot list image folder {path}: {error.strerror or error}") from error
        if files:
            check_links(root, [str(path), *(file.path for file in files if file.is_symlink())])
            place = "" if path == root else f"{os.path.relpath(path, root)}/"
            there = {name_of[file.name]: place + file.name for file in files}
            break
    if missing := [name for name in names if name not in there]:
        few = ", ".join([*missing[:3], *(["..."] if len(missing) > 3 else ())])
        name = missing[0].rpartition("/")[2]
        twins = {normalize("NFC", other) for path in existing for other in os.listdir(path) if other != name}
        hint = "; one has that name in another Unicode form" if normalize("NFC", name) in twins else ""
        raise MissingDataError(f"{len(missing)} of {len(names)} images are missing under {root}: {few}{hint}")
    return there


def decode_image(source: str | os.PathLike[str] | bytes, label: str = "") -> NDArray[np.uint8]:
    """Decode an image file, or the content of one, to RGB (H, W, 3) uint8; a `DataError` where it cannot be read.

    Transparency is composited on white. 16-bit greyscale keeps its upper 8 bits. Numbers of 32 bits must lie in 0 to 1
    (floating point), 0 to 255, or 0 to 65,535 (integers). Palettes, greyscale and CMYK are
    converted. An EXIF orientation is not applied, as in the published pipelines. Animations give their first frame.
    Messages name the image by its path, or by the label.
    """
    label = label or str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"it has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}")
            image.load()
            return np.asarray(to_rgb(image))
    except MemoryError:
        raise
    except Image.DecompressionBombError as error:
        raise DataError(f"cannot read image {label}: it has more than {MAX_PIXELS:,} pixels") from error
    except UnidentifiedImageError as error:  # Pillow's words name the object that it read from
        raise DataError(
            f"cannot read image {label}: it is empty, damaged, or in none of the formats {', '.join(FORMATS)}"
        ) from error
    # Pillow's decoders raise OSError, SyntaxError, ValueError, EOFError, struct.error and more on damaged files.
    except Exception as error:
        raise DataError(f"cannot read image {label}: {first_line(error)}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture in RGB, converted as :func:`decode_image` says."""
    if image.mode == "F" or image.mode.startswith("I"):  # which Pillow would clip to 255 when it converts them
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        coloured = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Floating-point and wide greyscale in 8 bits, by the range that its numbers are known or seen to have."""
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise DataError("it has numbers that are not finite")
    low, high = values.min(), values.max()
    ranges = (1, 255) if image.mode == "F" else (65535,) if image.mode != "I" or image.format == "PPM" else (255, 65535)
    top = next((top for top in ranges if 0 <= low and high <= top), 0)
    if not top:
        known = " or ".join(f"0 to {top}" for top in ranges)
        raise DataError(f"its numbers lie between {low:g} and {high:g}, and only those from {known} are known")
    return (values.astype(np.int64) >> 8 if top == 65535 else values * (255 if top == 1 else 1)).astype(np.uint8)
