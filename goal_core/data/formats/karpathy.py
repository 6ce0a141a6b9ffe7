"""Karpathy's JSON layout: COCO, Flickr30K and custom datasets.

The file is an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval, val or
test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.
Other keys are ignored.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from goal_core.basics.errors import DataError, MissingDataError, nearest
from goal_core.data.config import KarpathyConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_core.data.formats import raw_images as raw
from goal_core.data.formats.format import (
    DataReport,
    DatasetFormat,
    SplitCounts,
    dataset_folder,
    first_val,
    published_splits,
)

SPLIT_OF = {"train": "train", "restval": "train", "val": "val", "test": "test"}
"""The split for each split name in the file; `restval`, the rest of COCO's val2014, is trained on."""


class Karpathy(DatasetFormat[KarpathyConfig]):
    """`data.format: karpathy`."""

    name = "karpathy"
    source = (
        "annotations: dataset_coco.json and dataset_flickr30k.json are in caption_datasets.zip of Karpathy's page, "
        "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
    )

    def open(self, config: KarpathyConfig) -> Dataset:
        """Read the annotations, and check that every image file exists; images keep the order of the file.

        The corpus of the `legacy` vocabulary is every caption in the file.

        Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of
            `dataset_flickr30k.json`.
        """
        root = dataset_folder(config.root)
        path = _annotation_file(root, config.annotations)
        with _no_collector():
            records = _used(_read(path, config.max_captions), config.max_val_images)
            _check_records(records, path)
            files = raw.find_images(root, [record.name for record in records])
            whole = _read(path, 0) if config.vocabulary == "legacy" else []
            corpus = tuple(caption for record in whole for caption in record.captions)
            return raw.image_dataset(config, records, files, corpus)

    def check(self, config: KarpathyConfig, report: DataReport) -> None:
        """Report on the annotation file, every split's size, and every folder of images."""
        root = report.attempt(Path(config.root).expanduser().name, lambda: dataset_folder(config.root))
        if root is None:
            return
        path = report.attempt("annotations", lambda: _annotation_file(root, config.annotations))
        if path is None:
            return
        read = report.attempt(path.name, lambda: _read(path, config.max_captions))
        if read is None:
            return
        records = _used(read, config.max_val_images)
        report.note(path.name, "ok", f"{len(records):,} images")
        report.attempt(path.name, lambda: _check_records(records, path))
        published = self.published_counts(config)
        for name in SPLIT_NAMES:
            found = SplitCounts.of(record.captions for record in records if record.split == name)
            report.counts(name, found, published.get(name))
        raw.check_images(root, [record.name for record in records], report)

    def published_counts(self, config: KarpathyConfig) -> Mapping[str, SplitCounts]:
        """The counts of Karpathy's splits; the number of all captions of COCO is not published."""
        if config.name == "coco" and config.max_captions == 0:
            return {}
        counts = published_splits(config.name, min(config.max_captions or 5, 5))
        return first_val(counts, config.max_val_images)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable the garbage collector within the block.

    COCO's annotations make millions of objects, none in a cycle; searching them for cycles would take longer than
    reading them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _annotation_file(root: Path, annotations: str) -> Path:
    """The file that ``data.annotations`` names; for ``auto``, the only ``dataset_*.json`` in the root."""
    candidates = sorted(path for path in root.glob("dataset_*.json") if path.is_file())
    listed = ", ".join(path.name for path in candidates) or "none"
    if annotations != "auto":
        path = root / annotations
        if not path.is_file():
            raise MissingDataError(f"annotation file not found: {path} (dataset_*.json files there: {listed})")
        return path
    if not candidates:
        held = sorted(path.name for path in root.iterdir())
        shown = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "") if held else "nothing"
        raise MissingDataError(
            f"no annotation file dataset_*.json in {root}, which contains {shown}; name one with annotations"
        )
    if len(candidates) > 1:
        raise DataError(f"several annotation files in {root}: {listed}; name one with annotations")
    return candidates[0]


def _read(path: Path, max_captions: int) -> list[raw.ImageRecord]:
    """All images of an annotation file, in file order, with their first captions; 0 keeps all captions."""
    stored = raw.read_json(path)
    images = stored.get("images") if isinstance(stored, dict) else None
    if not isinstance(images, list):
        raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
    return [_record(item, f"{path}: images[{index}]", max_captions) for index, item in enumerate(images)]


def _used(records: list[raw.ImageRecord], max_val_images: int) -> list[raw.ImageRecord]:
    """Leave out the val images after the first ``max_val_images``; 0 keeps all."""
    if not max_val_images:
        return records
    val = [index for index, record in enumerate(records) if record.split == "val"]
    surplus = set(val[max_val_images:])
    return [record for index, record in enumerate(records) if index not in surplus]


def _check_records(records: Sequence[raw.ImageRecord], path: Path) -> None:
    """Check that no split is empty and no image is listed twice."""
    present = {record.split for record in records}
    for name in SPLIT_NAMES:
        if name not in present:
            raise DataError(f"split {name!r} of {path} has no images")
    seen: set[str] = set()
    for record in records:
        if record.name in seen:
            raise DataError(f"image {record.name} is listed more than once in {path}")
        seen.add(record.name)


def _record(item: object, where: str, max_captions: int) -> raw.ImageRecord:
    """Check one entry of ``images``; ``where`` locates it in messages."""
    if not isinstance(item, dict):
        raise DataError(f"{where} must be an object, got {type(item).__name__}")
    file_name = _text(item, "filename", where)
    folder = _text(item, "filepath", where) if "filepath" in item else ""
    name = f"{folder}/{file_name}".replace("\\", "/") if folder else file_name.replace("\\", "/")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or name.endswith("/") or ".." in parts or not parts:
        raise DataError(f"{where}: filepath and filename must name a file inside the root, got {name!r}")
    split = _text(item, "split", where)
    if split not in SPLIT_OF:
        hint = nearest(split, SPLIT_OF)
        raise DataError(f"{where}.split must be one of {', '.join(SPLIT_OF)}, got {split!r}{hint}")
    sentences = item.get("sentences")
    if not isinstance(sentences, list):
        raise DataError(f"{where}.sentences must be a list, got {raw.kind_of(item, 'sentences')}")
    if not sentences:
        raise DataError(f"{where} ({name}) has no captions")
    captions = tuple(_captions(sentences[: max_captions or None], where))
    return raw.ImageRecord(split=SPLIT_OF[split], name="/".join(parts), captions=captions)


def _captions(sentences: list[object], where: str) -> Iterator[str]:
    """The text of each sentence: `raw`, or the joined `tokens` where there is no `raw`."""
    for index, sentence in enumerate(sentences):
        here = f"{where}.sentences[{index}]"
        if not isinstance(sentence, dict):
            raise DataError(f"{here} must be an object with 'raw' or 'tokens', got {type(sentence).__name__}")
        if sentence.get("raw") is not None:
            caption = _text(sentence, "raw", here, may_be_empty=True)
        else:
            tokens = sentence.get("tokens")
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise DataError(f"{here} must have 'raw' text or a list of words 'tokens'")
            caption = " ".join(tokens)
        if not caption.strip():
            raise DataError(f"{here} is empty")
        yield caption.strip()


def _text(item: dict[str, object], key: str, where: str, *, may_be_empty: bool = False) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not (value or may_be_empty or key == "filepath"):
        raise DataError(f"{where}.{key} must be text, got {raw.kind_of(item, key)}")
    return value
