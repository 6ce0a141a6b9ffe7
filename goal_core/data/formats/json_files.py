"""Annotations in JSON: Karpathy's layout (COCO, Flickr30K and custom datasets), and X-VLM's.

Karpathy's file is an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval, val
or test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.

X-VLM has one list of records for each split. A record to train on is one pair: ``image`` (a path below the images'
folder) and ``caption`` (text). A record to evaluate on is one image: ``image`` and ``caption``, the list of its
captions.

Other keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data.config import KarpathyConfig, XvlmJsonConfig
from goal_core.data.formats.layout import (
    Layout,
    Listing,
    by_split,
    captions_in,
    dataset_folder,
    image_path,
    listing,
    read_json,
    split_named,
    stamped,
)
from goal_core.data.rows import Row


def karpathy(config: KarpathyConfig) -> Layout:
    """Read Karpathy's annotations; images keep the order of the file.

    The corpus of the `legacy` vocabulary is every caption in the file.

    Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of `dataset_flickr30k.json`.
    """
    root = dataset_folder(config.root)
    path = _annotation_file(root, config.annotations)
    files = stamped([path])
    stored = read_json(path)
    images = stored.get("images") if isinstance(stored, dict) else None
    if not isinstance(images, list):
        raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
    rows = [_karpathy_row(item, number, f"{path}: images[{number}]") for number, item in enumerate(images)]
    corpus = [text.strip() for row in rows for text in row.captions] if config.vocabulary == "legacy" else []
    return Layout(root=root, files=files, splits=by_split(rows), corpus=corpus)


def _annotation_file(root: Path, annotations: str) -> Path:
    """The file that ``data.annotations`` names; for ``auto``, the only ``dataset_*.json`` in the root."""
    found = sorted(path for path in root.glob("dataset_*.json") if path.is_file())
    there = f"in {root} there is {', '.join(path.name for path in found) or 'no dataset_*.json'}"
    if annotations != "auto":
        if not (root / annotations).is_file():
            raise MissingDataError(f"data.annotations: {root / annotations} is missing; {there}")
        return root / annotations
    if len(found) != 1:
        raise (DataError if found else MissingDataError)(f"{there}; name the annotation file: data.annotations")
    return found[0]


def _karpathy_row(item: object, number: int, where: str) -> Row:
    if not isinstance(item, dict):
        raise DataError(f"{where} must be an object, got {item!r:.80}")
    name = image_path(item.get("filename"), f"{where}.filename")
    if item.get("filepath"):
        name = image_path(f"{item['filepath']}/{name}", f"{where}.filepath")
    captions = captions_in(item.get("sentences"), f"{where}.sentences")
    return Row(name, captions, split_named(item.get("split"), f"{where}.split"), key=str(number))


def xvlm_json(config: XvlmJsonConfig) -> Layout:
    """Read X-VLM's JSON files; training pairs are grouped by image, in the order in which images first occur."""
    root = dataset_folder(config.root)
    names = {"train": config.train_files, "val": (config.val_file,), "test": (config.test_file,)}
    files = {split: [root / name for name in own] for split, own in names.items()}
    return Layout(
        root=root / config.image_root,
        files=stamped(path for own in files.values() for path in own),
        splits={split: partial(_xvlm_split, own) for split, own in files.items()},
    )


def _xvlm_split(paths: Sequence[Path]) -> Listing:
    return listing(row for path in paths for row in _xvlm_rows(path))


def _xvlm_rows(path: Path) -> Iterator[Row]:
    stored = read_json(path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for number, item in enumerate(stored):
        where = f"{path}: record {number}"
        if not isinstance(item, dict):
            raise DataError(f"{where} must be an object, got {item!r:.80}")
        yield Row(image_path(item.get("image"), f"{where}.image"), captions_in(item.get("caption"), f"{where}.caption"))
