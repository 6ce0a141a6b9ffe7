"""Raw images beside X-VLM's JSON files: one list of records for each split.

A record to train on is one pair: `image` (a path below the images' folder), `caption` (text) and `image_id`, which
tells the pairs of one image. A record to evaluate on is one image: `image` and `caption`, the list of its captions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from goal_core.data.config import XvlmJsonConfig
from goal_core.data.fingerprint import fingerprint_of
from goal_core.data.formats.image_files import FileReader, find_images
from goal_core.data.split import SPLIT_NAMES, Split, split_of
from goal_core.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """One image with its captions."""

    image: str
    """Path below the images' folder, with forward slashes."""
    captions: tuple[str, ...]
    """At least one."""


def load_xvlm_json(config: XvlmJsonConfig) -> tuple[dict[str, Split], str]:
    """Read the JSON files, and check that every image file exists.

    Training pairs come together by image, images in the order in which they first occur. The fingerprint covers split,
    file name, captions and bytes of each image.

    Returns:
        The splits train, val and test, and the fingerprint.

    Raises:
        DataError: a file is missing or malformed, an image file is missing, or an image is listed twice. One line that
            says which.
    """
    root = Path(config.root).expanduser()
    if not root.is_dir():
        raise DataError(f"dataset folder not found: {root}")
    records = {
        "train": train_records([root / name for name in config.train_files]),
        "val": eval_records(root / config.val_file)[: config.max_val_images or None],
        "test": eval_records(root / config.test_file),
    }
    check_once(records)
    places = {name: [place_of(record.image) for record in records[name]] for name in SPLIT_NAMES}
    files = {name: find_images(root / config.image_root, places[name]) for name in SPLIT_NAMES}
    described = (
        [name, record.image, record.captions, file.size]
        for name in SPLIT_NAMES
        for record, file in zip(records[name], files[name], strict=True)
    )
    fingerprint = fingerprint_of(config.image, config.min_word_count, described)
    readers = {name: FileReader(paths=tuple(file.path for file in files[name])) for name in SPLIT_NAMES}
    captions = {name: [record.captions for record in records[name]] for name in SPLIT_NAMES}
    return {name: split_of(name, captions[name], readers[name]) for name in SPLIT_NAMES}, fingerprint


def train_records(paths: Sequence[Path]) -> list[ImageRecord]:
    """Pairs of all files, brought together by image.

    Raises:
        DataError: a file is malformed, or an image has two ids, or an id two images.
    """
    captions: dict[str, list[str]] = {}
    id_of: dict[str, object] = {}
    image_of: dict[object, str] = {}
    for path in paths:
        for index, item in enumerate(_items(path)):
            where = f"{path}: record {index}"
            image, number = _image(item, where), item.get("image_id")
            if not isinstance(number, str | int) or isinstance(number, bool):
                raise DataError(f"{where}.image_id must be a number or text, got {_kind(item, 'image_id')}")
            if id_of.setdefault(image, number) != number:
                raise DataError(f"{where}: image {image} has two ids, {id_of[image]!r} and {number!r}")
            if image_of.setdefault(number, image) != image:
                raise DataError(f"{where}: image_id {number!r} is of two images, {image_of[number]} and {image}")
            captions.setdefault(image, []).append(_caption(item.get("caption"), f"{where}.caption"))
    return [ImageRecord(image=image, captions=tuple(texts)) for image, texts in captions.items()]


def eval_records(path: Path) -> list[ImageRecord]:
    """Images of a val or test file.

    Raises:
        DataError: the file is malformed.
    """
    records = []
    for index, item in enumerate(_items(path)):
        where = f"{path}: record {index}"
        texts = item.get("caption")
        if not isinstance(texts, list) or not texts:
            raise DataError(f"{where}.caption must be a list of captions, got {_kind(item, 'caption')}")
        captions = tuple(_caption(text, f"{where}.caption[{place}]") for place, text in enumerate(texts))
        records.append(ImageRecord(image=_image(item, where), captions=captions))
    return records


def check_once(records: dict[str, list[ImageRecord]]) -> None:
    """Check that no image is in two splits, or twice in one that is evaluated.

    Raises:
        DataError: an image is listed twice.
    """
    seen: dict[str, str] = {}
    for split, listed in records.items():
        for record in listed:
            if record.image in seen:
                raise DataError(f"image {record.image} is listed twice: in splits {seen[record.image]} and {split}")
            seen[record.image] = split


def _items(path: Path) -> list[dict[str, object]]:
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for index, item in enumerate(stored):
        if not isinstance(item, dict):
            raise DataError(f"{path}: record {index} must be an object, got {type(item).__name__}")
    return stored


def _image(item: dict[str, object], where: str) -> str:
    image = item.get("image")
    if not isinstance(image, str):
        raise DataError(f"{where}.image must be text, got {_kind(item, 'image')}")
    if not image or image.startswith("/") or ".." in PurePosixPath(image).parts:
        raise DataError(f"{where}.image must be a file below the images' folder, got {image!r}")
    return str(PurePosixPath(image))


def _caption(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"{where} must be text, got {'nothing' if text is None else type(text).__name__}")
    if not text.strip():
        raise DataError(f"{where} is empty")
    return text.strip()


def place_of(image: str) -> tuple[str, str]:
    """Folder (perhaps empty) and file name of a record's image."""
    path = PurePosixPath(image)
    return "/".join(path.parts[:-1]), path.name


def _kind(item: dict[str, object], key: str) -> str:
    if key not in item:
        return "no such key"
    return "an empty list" if item[key] == [] else type(item[key]).__name__
