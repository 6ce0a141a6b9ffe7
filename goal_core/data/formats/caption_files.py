"""The text files of SCAN and VSE-infinity: captions, and the ids of their images."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data.formats.format import dataset_folder


def split_files(test_file: Literal["test", "testall"]) -> dict[str, str]:
    """First word of the file names of each split: `train`, `val` and `test`."""
    return {"train": "train", "val": "dev", "test": test_file}


def precomp_folder(root: str) -> Path:
    """The folder of the `*_caps.txt` files: ``root/precomp`` where it exists, else the root.

    Raises:
        DataError: the root does not exist.
    """
    folder = dataset_folder(root)
    inner = folder / "precomp"
    return inner if inner.is_dir() else folder


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionFiles:
    """Content of one split's text files, in their order."""

    captions: tuple[tuple[str, ...], ...]
    """The captions of each image, equally many for all."""
    ids: tuple[str, ...]
    """The id of each image; no id occurs twice."""

    def first(self, num_images: int) -> CaptionFiles:
        """The same for the first images only; 0 keeps all."""
        kept = num_images or len(self.ids)
        return CaptionFiles(captions=self.captions[:kept], ids=self.ids[:kept])


def read_caption_files(folder: Path, word: str, num_images: int | None = None) -> CaptionFiles:
    """Read ``{word}_caps.txt`` and ``{word}_ids.txt``.

    Args:
        folder: the files' folder.
        word: `train`, `dev`, `test` or `testall`.
        num_images: N; None counts the runs of equal ids, for layouts where nothing else states N.

    Raises:
        DataError: a file is missing or is not UTF-8 text, a line is empty, the captions are not a multiple of the
            images, the ids are neither one per image nor one per caption, or an image is listed twice.
    """
    caps, ids = folder / f"{word}_caps.txt", folder / f"{word}_ids.txt"
    captions, listed = read_lines(caps), read_lines(ids)
    if num_images is None:
        runs = 1 + sum(one != other for one, other in pairwise(listed))
        num_images = runs if len(listed) == len(captions) else len(listed)
    per_image = captions_per_image(caps, len(captions), num_images)
    return CaptionFiles(
        captions=tuple(tuple(captions[start : start + per_image]) for start in range(0, len(captions), per_image)),
        ids=image_ids(ids, listed, num_images, per_image),
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, stripped. Where it does not exist, they are read from ``{path}.gz``.

    Raises:
        DataError: the file is missing, empty or not UTF-8 text, or a line is empty.
    """
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and packed.exists():
        path = packed
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path is packed else content).decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: byte {error.start} cannot be read") from error
    # Captions hold characters that `splitlines` takes for line ends.
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if "" in lines:
        raise DataError(f"{path} is empty" if lines == [""] else f"line {lines.index('') + 1} of {path} is empty")
    return lines


def captions_per_image(path: Path, num_captions: int, num_images: int) -> int:
    """How many consecutive captions each image has.

    Raises:
        DataError: the number of captions is not a multiple of the number of images.
    """
    per_image, rest = divmod(num_captions, num_images)
    if rest or not per_image:
        raise DataError(f"{path} has {num_captions} captions, not a multiple of the {num_images} images")
    return per_image


def image_ids(path: Path, listed: Sequence[str], num_images: int, per_image: int) -> tuple[str, ...]:
    """One id per image, from a list with one per image or one per caption.

    Raises:
        DataError: the list has the wrong length, the captions of one image have different ids, or an id occurs twice.
    """
    num_captions = num_images * per_image
    if len(listed) not in (num_images, num_captions):
        raise DataError(
            f"{path} has {len(listed)} ids, but must have one for each of the {num_images} images "
            f"or for each of the {num_captions} captions"
        )
    step = 1 if len(listed) == num_images else per_image
    for start in range(0, len(listed), step):
        odd = next((line for line in range(start, start + step) if listed[line] != listed[start]), None)
        if odd is not None:
            raise DataError(
                f"line {odd + 1} of {path} has id {listed[odd]}, but its caption belongs to the same image as that "
                f"of line {start + 1}, which has id {listed[start]}"
            )
    ids = tuple(listed[::step])
    check_distinct(path, ids)
    return ids


def check_distinct(path: Path, ids: Sequence[str]) -> None:
    """Check that no image is listed twice.

    Raises:
        DataError: one is.
    """
    seen: dict[str, int] = {}
    for image, name in enumerate(ids):
        if name in seen:
            raise DataError(
                f"image {name} is listed twice in {path}: as images {seen[name]} and {image}, counted from 0"
            )
        seen[name] = image
