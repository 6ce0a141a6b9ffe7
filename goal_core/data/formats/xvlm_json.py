"""X-VLM's JSON files with raw images: one list of records for each split.

A record to train on is one pair: `image` (a path below the images' folder), `caption` (text) and `image_id`, which
the pairs of one image share. A record to evaluate on is one image: `image` and `caption`, the list of its captions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from goal_core.basics.errors import DataError
from goal_core.data.config import XvlmJsonConfig
from goal_core.data.dataset import Dataset
from goal_core.data.formats import raw_images as raw
from goal_core.data.formats.format import (
    DataReport,
    DatasetFormat,
    SplitCounts,
    dataset_folder,
    first_val,
    published_splits,
)

_COCO_COUNTS = {
    "train": SplitCounts(images=113_287, captions=566_747),
    "val": SplitCounts(images=5_000, captions=25_010),
    "test": SplitCounts(images=5_000, captions=25_010),
}
"""X-VLM's files contain every caption of COCO, where some images have six or seven."""


class XvlmJson(DatasetFormat[XvlmJsonConfig]):
    """`data.format: xvlm_json`."""

    name = "xvlm_json"
    source = "annotations: the JSON files for fine-tuning on retrieval that X-VLM's README links"

    def open(self, config: XvlmJsonConfig) -> Dataset:
        """Read the JSON files, and check that every image file exists.

        Training pairs are grouped by image; the images keep the order in which they first occur.
        """
        root = dataset_folder(config.root)
        splits = {
            "train": _train_records([root / name for name in config.train_files]),
            "val": _eval_records(root / config.val_file, "val")[: config.max_val_images or None],
            "test": _eval_records(root / config.test_file, "test"),
        }
        raw.check_once(names := _names(splits))
        files = [file for listed in names.values() for file in raw.find_images(root / config.image_root, listed)]
        return raw.image_dataset(config, [record for records in splits.values() for record in records], files)

    def check(self, config: XvlmJsonConfig, report: DataReport) -> None:
        """Report on every JSON file, every split's size and every folder of images."""
        root = report.attempt(Path(config.root).expanduser().name, lambda: dataset_folder(config.root))
        if root is None:
            return
        splits: dict[str, list[raw.ImageRecord]] = {}
        alone = [report.attempt(name, partial(_train_records, [root / name])) for name in config.train_files]
        train = [records for records in alone if records is not None]
        if len(train) == len(alone) == 1:
            splits["train"] = train[0]
        elif len(train) == len(alone):
            paths = [root / name for name in config.train_files]
            together = report.attempt("train", lambda: _train_records(paths))
            splits |= {} if together is None else {"train": together}
        for split, name in (("val", config.val_file), ("test", config.test_file)):
            read = report.attempt(name, partial(_eval_records, root / name, split))
            if read is not None:
                splits[split] = read[: config.max_val_images or None] if split == "val" else read
        published = self.published_counts(config)
        for split, records in splits.items():
            report.counts(split, SplitCounts.of(record.captions for record in records), published.get(split))
        report.attempt("images", lambda: raw.check_once(_names(splits)))
        evaluated = [splits[split] for split in ("val", "test") if split in splits]
        names = [record.name for records in (*train, *evaluated) for record in records]
        raw.check_images(root / config.image_root, names, report)

    def published_counts(self, config: XvlmJsonConfig) -> Mapping[str, SplitCounts]:
        """The counts of Karpathy's splits, for COCO with all captions."""
        counts = _COCO_COUNTS if config.name == "coco" else published_splits(config.name)
        return first_val(counts, config.max_val_images)


def _train_records(paths: Sequence[Path]) -> list[raw.ImageRecord]:
    """The pairs of all files, grouped by image."""
    captions: dict[str, list[str]] = {}
    id_of: dict[str, object] = {}
    image_of: dict[object, str] = {}
    for item, where in (found for path in paths for found in _items(path)):
        image, number = _image(item, where), item.get("image_id")
        if not isinstance(number, str | int) or isinstance(number, bool):
            raise DataError(f"{where}.image_id must be a number or text, got {raw.kind_of(item, 'image_id')}")
        if id_of.setdefault(image, number) != number:
            raise DataError(f"{where}: image {image} has two ids, {id_of[image]!r} and {number!r}")
        if image_of.setdefault(number, image) != image:
            raise DataError(f"{where}: image_id {number!r} belongs to two images, {image_of[number]} and {image}")
        captions.setdefault(image, []).append(_caption(item.get("caption"), f"{where}.caption"))
    return [raw.ImageRecord(split="train", name=image, captions=tuple(texts)) for image, texts in captions.items()]


def _eval_records(path: Path, split: str) -> list[raw.ImageRecord]:
    """The images of a val or test file."""
    records = []
    for item, where in _items(path):
        texts = item.get("caption")
        if not isinstance(texts, list) or not texts:
            raise DataError(f"{where}.caption must be a list of captions, got {raw.kind_of(item, 'caption')}")
        captions = tuple(_caption(text, f"{where}.caption[{number}]") for number, text in enumerate(texts))
        records.append(raw.ImageRecord(split=split, name=_image(item, where), captions=captions))
    return records


def _names(splits: Mapping[str, Sequence[raw.ImageRecord]]) -> dict[str, list[str]]:
    return {split: [record.name for record in records] for split, records in splits.items()}


def _items(path: Path) -> Iterator[tuple[dict[str, object], str]]:
    """The records of a file, each with words that locate it in messages."""
    stored = raw.read_json(path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for index, item in enumerate(stored):
        if not isinstance(item, dict):
            raise DataError(f"{path}: record {index} must be an object, got {type(item).__name__}")
        yield item, f"{path}: record {index}"


def _image(item: dict[str, object], where: str) -> str:
    image = item.get("image")
    if not isinstance(image, str):
        raise DataError(f"{where}.image must be text, got {raw.kind_of(item, 'image')}")
    if not image or image.startswith("/") or ".." in PurePosixPath(image).parts:
        raise DataError(f"{where}.image must be a file below the images' folder, got {image!r}")
    return str(PurePosixPath(image))


def _caption(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"{where} must be text, got {'nothing' if text is None else type(text).__name__}")
    if not text.strip():
        raise DataError(f"{where} is empty")
    return text.strip()
