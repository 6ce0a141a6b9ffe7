"""Annotations in JSON: Karpathy's layout (COCO, Flickr30K and custom datasets), and X-VLM's.

Karpathy's file is an object whose ``images`` list holds, for each image, ``filename``, ``split`` (train, restval, val
or test), ``sentences`` (each with ``raw`` text, or ``tokens``) and, where images lie in folders, ``filepath``.

X-VLM has one list of records for each split. A record to train on is one pair: ``image`` (a path below the images'
folder), ``caption`` (text) and ``image_id``, which the pairs of one image share. A record to evaluate on is one image:
``image`` and ``caption``, the list of its captions.

Other keys are ignored.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from goal_core.basics.errors import DataError, MissingDataError, nearest
from goal_core.data.config import KarpathyConfig, XvlmJsonConfig
from goal_core.data.dataset import SPLIT_NAMES
from goal_core.data.formats.layout import Layout, Listing, dataset_folder

SPLIT_OF = {"train": "train", "restval": "train", "val": "val", "test": "test"}
"""The split for each split name in Karpathy's file; `restval`, the rest of COCO's val2014, is trained on."""


def karpathy(config: KarpathyConfig) -> Layout:
    """Read Karpathy's annotations; images keep the order of the file.

    The corpus of the `legacy` vocabulary is every caption in the file.

    Source: VSE++ (vocab.py) counts words over COCO's train2014 and val2014, or over all of `dataset_flickr30k.json`.
    """
    root = dataset_folder(config.root)
    path = _annotation_file(root, config.annotations)
    with _no_collector():
        stored = read_json(path)
        images = stored.get("images") if isinstance(stored, dict) else None
        if not isinstance(images, list):
            raise DataError(f"{path} must be an object with a list 'images', the layout of Karpathy's dataset_*.json")
        records: dict[str, list[tuple[str, list[str]]]] = {split: [] for split in SPLIT_NAMES}
        corpus: list[str] = []
        for index, item in enumerate(images):
            split, name, captions = _karpathy_record(item, f"{path}: images[{index}]")
            records[split].append((name, captions[: config.max_captions or None]))
            corpus += captions if config.vocabulary == "legacy" else ()
    return Layout(
        root=root,
        files=[path],
        splits={split: partial(_listing, of_split) for split, of_split in records.items()},
        corpus=corpus,
    )


def xvlm_json(config: XvlmJsonConfig) -> Layout:
    """Read X-VLM's JSON files; training pairs are grouped by image, in the order in which images first occur."""
    root = dataset_folder(config.root)
    return Layout(
        root=root / config.image_root,
        files=[root / name for name in (*config.train_files, config.val_file, config.test_file)],
        splits={
            "train": lambda: _listing(_train_records([root / name for name in config.train_files])),
            "val": lambda: _listing(_eval_records(root / config.val_file)),
            "test": lambda: _listing(_eval_records(root / config.test_file)),
        },
    )


def _listing(records: Sequence[tuple[str, list[str]]]) -> Listing:
    return Listing(names=[name for name, _ in records], captions=[captions for _, captions in records])


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


def _karpathy_record(item: Any, where: str) -> tuple[str, str, list[str]]:
    """The split, file and captions of one entry of ``images``; ``where`` locates it in messages."""
    _check_object(item, where)
    file_name = _text(item, "filename", where)
    folder = _text(item, "filepath", where, may_be_empty=True) if "filepath" in item else ""
    split = _text(item, "split", where)
    if split not in SPLIT_OF:
        raise DataError(f"{where}.split must be one of {', '.join(SPLIT_OF)}, got {split!r}{nearest(split, SPLIT_OF)}")
    path = f"{folder}/{file_name}" if folder else file_name
    name = _relative_path(path.replace("\\", "/"), f"{where}: filepath and filename", "inside the root")
    sentences = item.get("sentences")
    if not isinstance(sentences, list):
        raise DataError(f"{where}.sentences must be a list, got {_kind_of(item, 'sentences')}")
    if not sentences:
        raise DataError(f"{where} ({name}) has no captions")
    captions = [_sentence(sentence, f"{where}.sentences[{index}]") for index, sentence in enumerate(sentences)]
    return SPLIT_OF[split], name, captions


def _sentence(sentence: Any, where: str) -> str:
    """The text of a sentence: `raw`, or the joined `tokens` where there is no `raw`."""
    if not isinstance(sentence, dict):
        raise DataError(f"{where} must be an object with 'raw' or 'tokens', got {type(sentence).__name__}")
    if sentence.get("raw") is not None:
        return _caption(sentence["raw"], f"{where}.raw")
    tokens = sentence.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError(f"{where} must have 'raw' text or a list of words 'tokens'")
    return _caption(" ".join(tokens), where)


def _train_records(paths: Sequence[Path]) -> list[tuple[str, list[str]]]:
    """The pairs of all of X-VLM's files, grouped by image."""
    captions: dict[str, list[str]] = {}
    id_of: dict[str, object] = {}
    image_of: dict[object, str] = {}
    for item, where in (record for path in paths for record in _xvlm_records(path)):
        image, number = _xvlm_image(item, where), item.get("image_id")
        if not isinstance(number, str | int) or isinstance(number, bool):
            raise DataError(f"{where}.image_id must be a number or text, got {_kind_of(item, 'image_id')}")
        if id_of.setdefault(image, number) != number:
            raise DataError(f"{where}: image {image} has two ids, {id_of[image]!r} and {number!r}")
        if image_of.setdefault(number, image) != image:
            raise DataError(f"{where}: image_id {number!r} belongs to two images, {image_of[number]} and {image}")
        captions.setdefault(image, []).append(_caption(item.get("caption"), f"{where}.caption"))
    return list(captions.items())


def _eval_records(path: Path) -> list[tuple[str, list[str]]]:
    """The images of one of X-VLM's val or test files."""
    records = []
    for item, where in _xvlm_records(path):
        texts = item.get("caption")
        if not isinstance(texts, list) or not texts:
            raise DataError(f"{where}.caption must be a list of captions, got {_kind_of(item, 'caption')}")
        captions = [_caption(text, f"{where}.caption[{number}]") for number, text in enumerate(texts)]
        records.append((_xvlm_image(item, where), captions))
    return records


def _xvlm_records(path: Path) -> Iterator[tuple[dict[str, object], str]]:
    """The records of a file, each with words that locate it in messages."""
    stored = read_json(path)
    if not isinstance(stored, list) or not stored:
        raise DataError(f"{path} must be a list of records, the layout of X-VLM's retrieval files")
    for index, item in enumerate(stored):
        _check_object(item, f"{path}: record {index}")
        yield item, f"{path}: record {index}"


def _xvlm_image(item: Mapping[str, object], where: str) -> str:
    return _relative_path(_text(item, "image", where), f"{where}.image", "below the images' folder")


def read_json(path: Path) -> object:
    """Parse a JSON file.

    Raises:
        DataError: it is missing, cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error


def _check_object(item: object, where: str) -> None:
    if not isinstance(item, dict):
        raise DataError(f"{where} must be an object, got {type(item).__name__}")


def _relative_path(text: str, what: str, place: str) -> str:
    """A relative path without ``.``, whose parts are below its folder."""
    path = PurePosixPath(text)
    if path.is_absolute() or text.endswith("/") or ".." in path.parts or not path.parts:
        raise DataError(f"{what} must be a file {place}, got {text!r}")
    return str(path)


def _caption(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"{where} must be text, got {'nothing' if text is None else type(text).__name__}")
    if not text.strip():
        raise DataError(f"{where} is empty")
    return text.strip()


def _text(item: Mapping[str, object], key: str, where: str, *, may_be_empty: bool = False) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise DataError(f"{where}.{key} must be text, got {_kind_of(item, key)}")
    return value


def _kind_of(item: Mapping[str, object], key: str) -> str:
    """Describe the wrong value of a key, for messages."""
    if key not in item:
        return "no such key"
    if item[key] == "":
        return "an empty text"
    return "an empty list" if item[key] == [] else type(item[key]).__name__
