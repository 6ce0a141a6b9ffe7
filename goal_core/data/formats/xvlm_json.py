"""X-VLM's JSON files with raw images: one list of records for each split.

A record to train on is one pair: `image` (a path below the images' folder), `caption` (text) and `image_id`, which
the pairs of one image share. A record to evaluate on is one image: `image` and `caption`, the list of its captions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from goal_core.data.config import XvlmJsonConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_core.data.formats.format import (
    IMAGE_SOURCES,
    PUBLISHED_COUNTS,
    DataReport,
    DatasetFormat,
    SplitCounts,
    first_val,
)
from goal_core.data.formats.raw_images import (
    ImageRecord,
    check_images,
    check_once,
    find_images,
    image_dataset,
    kind_of,
    read_json,
)
from goal_core.errors import DataError

_COCO_COUNTS = {
    "train": SplitCounts(images=113_287, captions=566_747),
    "val": SplitCounts(images=5_000, captions=25_010),
    "test": SplitCounts(images=5_000, captions=25_010),
}
"""X-VLM's files hold every caption of COCO, where some images have six or seven."""


class XvlmJson(DatasetFormat[XvlmJsonConfig]):
    """`data.format: xvlm_json`."""

    name = "xvlm_json"

    def open(self, config: XvlmJsonConfig) -> Dataset:
        """Read the JSON files, and check that every image file exists.

        Training pairs are grouped by image; the images keep the order in which they first occur.
        """
        root = Path(config.root).expanduser()
        if not root.is_dir():
            raise DataError(f"dataset folder not found: {root}")
        records = {
            "train": train_records([root / name for name in config.train_files]),
            "val": eval_records(root / config.val_file, "val")[: config.max_val_images or None],
            "test": eval_records(root / config.test_file, "test"),
        }
        names = _names(records)
        check_once(names)
        files = [file for name in SPLIT_NAMES for file in find_images(root / config.image_root, names[name])]
        return image_dataset(config, [record for name in SPLIT_NAMES for record in records[name]], files)

    def check(self, config: XvlmJsonConfig, report: DataReport) -> None:
        """Report on every JSON file, every split's size and every folder of images."""
        root = Path(config.root).expanduser()
        if not root.is_dir():
            report.note(root.name, "missing", f"dataset folder not found: {root}")
            return
        records: dict[str, list[ImageRecord]] = {}
        alone = [report.attempt(name, partial(train_records, [root / name])) for name in config.train_files]
        train = [listed for listed in alone if listed is not None]
        if len(train) == len(alone) == 1:
            records["train"] = train[0]
        elif len(train) == len(alone):
            paths = [root / name for name in config.train_files]
            together = report.attempt("train", lambda: train_records(paths))
            records |= {} if together is None else {"train": together}
        for split, name in (("val", config.val_file), ("test", config.test_file)):
            read = report.attempt(name, partial(eval_records, root / name, split))
            if read is not None:
                records[split] = read[: config.max_val_images or None] if split == "val" else read
        published = self.published_counts(config)
        for split, listed in records.items():
            report.counts(split, SplitCounts.of(record.captions for record in listed), published.get(split))
        report.attempt("images", lambda: check_once(_names(records)))
        evaluated = [records[split] for split in ("val", "test") if split in records]
        names = [record.file for listed in (*train, *evaluated) for record in listed]
        check_images(root / config.image_root, names, report)

    def published_counts(self, config: XvlmJsonConfig) -> Mapping[str, SplitCounts]:
        """COCO with all its captions."""
        counts = _COCO_COUNTS if config.name == "coco" else PUBLISHED_COUNTS.get(config.name, {})
        return first_val(counts, config.max_val_images)

    def how_to_obtain(self, config: XvlmJsonConfig) -> tuple[str, ...]:
        """The files of X-VLM, and the images."""
        files = "annotations: the JSON files for fine-tuning on retrieval that X-VLM's README links"
        return (files, IMAGE_SOURCES[config.name]) if config.name in IMAGE_SOURCES else ()


def train_records(paths: Sequence[Path]) -> list[ImageRecord]:
    """The pairs of all files, grouped by image.

    Raises:
        DataError: a file is malformed, an image has two ids, or an id belongs to two images.
    """
    captions: dict[str, list[str]] = {}
    id_of: dict[str, object] = {}
    image_of: dict[object, str] = {}
    for path in paths:
        for index, item in enumerate(_items(path)):
            where = f"{path}: record {index}"
            image, number = _image(item, where), item.get("image_id")
            if not isinstance(number, str | int) or isinstance(number, bool):
                raise DataError(f"{where}.image_id must be a number or text, got {kind_of(item, 'image_id')}")
            if id_of.setdefault(image, number) != number:
                raise DataError(f"{where}: image {image} has two ids, {id_of[image]!r} and {number!r}")
            if image_of.setdefault(number, image) != image:
                raise DataError(f"{where}: image_id {number!r} is of two images, {image_of[number]} and {image}")
            captions.setdefault(image, []).append(_caption(item.get("caption"), f"{where}.caption"))
    return [ImageRecord(split="train", file=image, captions=tuple(texts)) for image, texts in captions.items()]


def eval_records(path: Path, split: str) -> list[ImageRecord]:
    """The images of a val or test file.

    Raises:
        DataError: the file is malformed.
    """
    records = []
    for index, item in enumerate(_items(path)):
        where = f"{path}: record {index}"
        texts = item.get("caption")
        if not isinstance(texts, list) or not texts:
            raise DataError(f"{where}.caption must be a list of captions, got {kind_of(item, 'caption')}")
        captions = tuple(_caption(text, f"{where}.caption[{number}]") for number, text in enumerate(texts))
        records.append(ImageRecord(split=split, file=_image(item, where), captions=captions))
    return records


def _names(records: Mapping[str, Sequence[ImageRecord]]) -> dict[str, list[str]]:
    return {split: [record.file for record in listed] for split, listed in records.items()}


def _items(path: Path) -> list[dict[str, object]]:
    stored = read_json(path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for index, item in enumerate(stored):
        if not isinstance(item, dict):
            raise DataError(f"{path}: record {index} must be an object, got {type(item).__name__}")
    return stored


def _image(item: dict[str, object], where: str) -> str:
    image = item.get("image")
    if not isinstance(image, str):
        raise DataError(f"{where}.image must be text, got {kind_of(item, 'image')}")
    if not image or image.startswith("/") or ".." in PurePosixPath(image).parts:
        raise DataError(f"{where}.image must be a file below the images' folder, got {image!r}")
    return str(PurePosixPath(image))


def _caption(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"{where} must be text, got {'nothing' if text is None else type(text).__name__}")
    if not text.strip():
        raise DataError(f"{where} is empty")
    return text.strip()
