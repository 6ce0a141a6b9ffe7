"""What of raw images and the files beside them is present, missing or wrong, each file and folder by itself."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from goal_core.data.config import IdMappedConfig, XvlmJsonConfig
from goal_core.data.formats import id_mapping, xvlm_json
from goal_core.data.formats.caption_files import CaptionFiles, precomp_folder, read_caption_files, split_files
from goal_core.data.formats.data_report import DataReport
from goal_core.data.formats.image_files import find_images
from goal_core.data.formats.published import SplitCounts, published_counts


def check_images(root: Path, places: Sequence[tuple[str, str]], report: DataReport) -> None:
    """Note for each folder of images how many are there, or which are not.

    Args:
        root: folder of the dataset.
        places: (folder or an empty string, file name) of each image, relative, with forward slashes.
        report: is added to.
    """
    folders: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for folder, name in dict.fromkeys(places):
        folders[folder].append((folder, name))
    for folder, files in sorted(folders.items()):
        item = f"{folder}/" if folder else "images"
        located = report.attempt(item, partial(find_images, root, files))
        if located is not None:
            size = sum(file.size for file in located) / 1e9
            where = os.path.dirname(located[0].path)
            report.note(item, "ok", f"{len(located):,} files, {size:.2f} GB in {where}")
            for file in (file for file in located if not file.size):
                report.note(item, "wrong", f"image {file.path} is empty")


def check_xvlm_json(config: XvlmJsonConfig, report: DataReport) -> None:
    """Note what is there of X-VLM's layout: every JSON file, every split's size, every folder of images."""
    root = Path(config.root).expanduser()
    if not root.is_dir():
        report.note(root.name, "missing", f"dataset folder not found: {root}")
        return
    records: dict[str, list[xvlm_json.ImageRecord]] = {}
    alone = [report.attempt(name, partial(xvlm_json.train_records, [root / name])) for name in config.train_files]
    train = [listed for listed in alone if listed is not None]
    if len(train) == len(alone) == 1:
        records["train"] = train[0]
    elif len(train) == len(alone):
        paths = [root / name for name in config.train_files]
        together = report.attempt("train", lambda: xvlm_json.train_records(paths))
        records |= {} if together is None else {"train": together}
    for split, name in (("val", config.val_file), ("test", config.test_file)):
        read = report.attempt(name, partial(xvlm_json.eval_records, root / name))
        if read is not None:
            records[split] = read[: config.max_val_images or None] if split == "val" else read
    for split, listed in records.items():
        found = SplitCounts(images=len(listed), captions=sum(len(record.captions) for record in listed))
        report.counts(split, found, published_counts(config).get(split))
    report.attempt("images", lambda: xvlm_json.check_once(records))
    whole = [records[split] for split in ("val", "test") if split in records]
    places = [xvlm_json.place_of(record.image) for listed in (*train, *whole) for record in listed]
    check_images(root / config.image_root, places, report)


def check_id_mapped(config: IdMappedConfig, report: DataReport) -> None:
    """Note what is there of VSE-infinity's image layout: every text file, the mapping, every folder of images."""
    root = Path(config.root).expanduser()
    folder = report.attempt(root.name, lambda: precomp_folder(root))
    if folder is None:
        return
    texts: dict[str, CaptionFiles] = {}
    for split, word in split_files(config.test_file).items():
        read = report.attempt(split, partial(read_caption_files, folder, word))
        if read is not None:
            texts[split] = read.first(config.max_val_images) if split == "val" else read
            captions = sum(len(of_image) for of_image in texts[split].captions)
            found = SplitCounts(images=len(texts[split].ids), captions=captions)
            report.counts(split, found, published_counts(config).get(split))
    path = root / "id_mapping.json"
    mapping = report.attempt(path.name, lambda: id_mapping.read_id_mapping(path))
    if mapping is None:
        return
    report.note(path.name, "ok", f"{len(mapping):,} ids")
    places: dict[str, list[tuple[str, str]]] = {}
    for split, files in texts.items():
        named = report.attempt(path.name, partial(id_mapping.file_names, files.ids, mapping, path))
        if named is not None:
            places[split] = named
    report.attempt(path.name, lambda: id_mapping.check_once(places, path))
    check_images(root, [place for named in places.values() for place in named], report)
