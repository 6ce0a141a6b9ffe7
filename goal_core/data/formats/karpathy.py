"""Datasets in Karpathy's JSON layout: COCO, Flickr30K and custom sets alike.

The file is an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval, val or
test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.
Further keys are ignored.
"""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from goal_core.data.config import KarpathyConfig
from goal_core.data.fingerprint import fingerprint_of
from goal_core.data.formats.image_files import FileReader, ImageFile, find_images
from goal_core.data.split import SPLIT_NAMES, Split, split_of
from goal_core.errors import DataError, nearest

SPLIT_OF = {"train": "train", "restval": "train", "val": "val", "test": "test"}
"""The split that each split name of the file belongs to; `restval`, the rest of COCO's val2014, trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One image of the annotation file."""

    split: str
    """`train`, `val` or `test`."""
    folder: str
    """Folder of the file, relative, with forward slashes; empty when the annotations name none."""
    file_name: str
    captions: tuple[str, ...]
    """At least one."""


def load_karpathy(config: KarpathyConfig) -> tuple[dict[str, Split], str]:
    """Read the annotations, check that every image file exists, and build the splits.

    Images keep the order of the file. The fingerprint covers split, file name, captions and bytes of each image that
    is used, so content that changes and keeps its file's size is not noticed.

    Returns:
        The splits train, val and test, and the fingerprint.

    Raises:
        DataError: see :func:`goal_core.data.open_dataset`.
    """
    root = Path(config.root).expanduser()
    if not root.is_dir():
        raise DataError(f"dataset folder not found: {root}")
    path = find_annotations(root, config.annotations)
    with _no_collector():
        records = select_records(read_annotations(path, config.max_captions), config.max_val_images)
        check_records(records, path)
        files = find_images(root, [(record.folder, record.file_name) for record in records])
        described: Iterable[object] = (_described(record, file) for record, file in zip(records, files, strict=True))
        if config.vocabulary == "legacy":
            described = itertools.chain(described, [["vocabulary", every_caption(config)]])
        fingerprint = fingerprint_of(config.image, config.min_word_count, described)
        return {name: _split(name, records, files) for name in SPLIT_NAMES}, fingerprint


def every_caption(config: KarpathyConfig) -> tuple[str, ...]:
    """All captions in the annotation file, of whatever split and however many an image has, in file order.

    Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of `dataset_flickr30k.json`.
    """
    path = find_annotations(Path(config.root).expanduser(), config.annotations)
    with _no_collector():
        return tuple(caption for record in read_annotations(path, 0) for caption in record.captions)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Within the block Python does not search for reference cycles.

    COCO's annotations make millions of objects, none in a cycle, and the searches take longer than the work.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _split(name: str, records: list[Record], files: list[ImageFile]) -> Split:
    mine = [index for index, record in enumerate(records) if record.split == name]
    reader = FileReader(paths=tuple(files[index].path for index in mine))
    return split_of(name, [records[index].captions for index in mine], reader)


def find_annotations(root: Path, annotations: str) -> Path:
    """The annotation file of a dataset folder.

    Args:
        root: an existing folder.
        annotations: file relative to the root, or ``auto`` for the one ``dataset_*.json`` there.

    Raises:
        DataError: the file is not there, or ``auto`` finds none or several.
    """
    candidates = sorted(path for path in root.glob("dataset_*.json") if path.is_file())
    listed = ", ".join(path.name for path in candidates) or "none"
    if annotations != "auto":
        path = root / annotations
        if not path.is_file():
            raise DataError(f"annotation file not found: {path} (dataset_*.json files there: {listed})")
        return path
    if not candidates:
        held = sorted(path.name for path in root.iterdir())
        shown = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "") if held else "nothing"
        raise DataError(f"no annotation file dataset_*.json in {root}, which holds {shown}; name one with annotations")
    if len(candidates) > 1:
        raise DataError(f"several annotation files in {root}: {listed}; name one with annotations")
    return candidates[0]


def read_annotations(path: Path, max_captions: int) -> list[Record]:
    """Parse an annotation file.

    Args:
        path: the JSON file.
        max_captions: captions to keep of each image, in file order; 0 keeps all.

    Returns:
        All images, in file order.

    Raises:
        DataError: the file is not JSON or of another layout; the message says at which key.
    """
    stored = _stored(path)
    images = stored.get("images") if isinstance(stored, dict) else None
    if not isinstance(images, list):
        raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
    return [_record(item, f"{path}: images[{index}]", max_captions) for index, item in enumerate(images)]


def select_records(records: list[Record], max_val_images: int) -> list[Record]:
    """Leave out the val images after the first ``max_val_images``; 0 keeps all."""
    if not max_val_images:
        return records
    val = [index for index, record in enumerate(records) if record.split == "val"]
    surplus = set(val[max_val_images:])
    return [record for index, record in enumerate(records) if index not in surplus]


def _stored(path: Path) -> object:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return json.load(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error


def _record(item: object, where: str, max_captions: int) -> Record:
    """Check one entry of ``images``; ``where`` says which in messages."""
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
        raise DataError(f"{where}.sentences must be a list, got {_kind(item, 'sentences')}")
    if not sentences:
        raise DataError(f"{where} ({name}) has no captions")
    captions = tuple(_captions(sentences[: max_captions or None], where))
    return Record(split=SPLIT_OF[split], folder="/".join(parts[:-1]), file_name=parts[-1], captions=captions)


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
        raise DataError(f"{where}.{key} must be text, got {_kind(item, key)}")
    return value


def _kind(item: dict[str, object], key: str) -> str:
    """What a key holds instead of what it should, in words."""
    if key not in item:
        return "no such key"
    return "an empty text" if item[key] == "" else type(item[key]).__name__


def check_records(records: list[Record], path: Path) -> None:
    """Check what the records are together.

    Raises:
        DataError: a split is empty, or an image is listed twice.
    """
    present = {record.split for record in records}
    for name in SPLIT_NAMES:
        if name not in present:
            raise DataError(f"split {name!r} of {path} has no images")
    seen: set[tuple[str, str]] = set()
    for record in records:
        image = (record.folder, record.file_name)
        if image in seen:
            raise DataError(f"image {'/'.join(filter(None, image))} is listed more than once in {path}")
        seen.add(image)


def _described(record: Record, file: ImageFile) -> object:
    name = "/".join(filter(None, (record.folder, record.file_name)))
    return [record.split, name, record.captions, file.size]
