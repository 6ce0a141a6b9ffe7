"""VSE-infinity's tree of raw images: captions and ids in text files, and the file of each id in `id_mapping.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from goal_core.data.config import IdMappedConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_core.data.formats.caption_files import CaptionFiles, precomp_folder, read_caption_files, split_files
from goal_core.data.formats.format import IMAGE_SOURCES, DataReport, DatasetFormat, SplitCounts, published_test_files
from goal_core.data.formats.raw_images import (
    ImageRecord,
    check_images,
    check_once,
    find_images,
    image_dataset,
    read_json,
)
from goal_core.errors import DataError


class IdMapping(DatasetFormat[IdMappedConfig]):
    """`data.format: id_mapping`."""

    name = "id_mapping"

    def open(self, config: IdMappedConfig) -> Dataset:
        """Read captions, ids and the mapping, and check that every image file exists."""
        root = Path(config.root).expanduser()
        folder, words = precomp_folder(root), split_files(config.test_file)
        texts = {name: read_caption_files(folder, words[name]) for name in SPLIT_NAMES}
        texts["val"] = texts["val"].first(config.max_val_images)
        path = root / "id_mapping.json"
        mapping = read_id_mapping(path)
        names = {name: file_names(texts[name].ids, mapping, path) for name in SPLIT_NAMES}
        check_once(names, f" of {path}")
        files = [file for name in SPLIT_NAMES for file in find_images(root, names[name])]
        records = [
            ImageRecord(split=name, file=file, captions=captions)
            for name in SPLIT_NAMES
            for file, captions in zip(names[name], texts[name].captions, strict=True)
        ]
        return image_dataset(config, records, files)

    def check(self, config: IdMappedConfig, report: DataReport) -> None:
        """Report on every text file, the mapping, and every folder of images."""
        root = Path(config.root).expanduser()
        folder = report.attempt(root.name, lambda: precomp_folder(root))
        if folder is None:
            return
        texts: dict[str, CaptionFiles] = {}
        published = self.published_counts(config)
        for split, word in split_files(config.test_file).items():
            read = report.attempt(split, partial(read_caption_files, folder, word))
            if read is not None:
                texts[split] = read.first(config.max_val_images) if split == "val" else read
                report.counts(split, SplitCounts.of(texts[split].captions), published.get(split))
        path = root / "id_mapping.json"
        mapping = report.attempt(path.name, lambda: read_id_mapping(path))
        if mapping is None:
            return
        report.note(path.name, "ok", f"{len(mapping):,} ids")
        names: dict[str, list[str]] = {}
        for split, files in texts.items():
            named = report.attempt(path.name, partial(file_names, files.ids, mapping, path))
            if named is not None:
                names[split] = named
        report.attempt(path.name, lambda: check_once(names, f" of {path}"))
        check_images(root, [name for listed in names.values() for name in listed], report)

    def published_counts(self, config: IdMappedConfig) -> Mapping[str, SplitCounts]:
        """Without the test split of COCO's `test` files, which hold a part of the 5,000 images."""
        return published_test_files(config)

    def how_to_obtain(self, config: IdMappedConfig) -> tuple[str, ...]:
        """The files of VSE-infinity, and the images."""
        files = "id_mapping.json and precomp/: the data folder that VSE-infinity's README links"
        return (files, IMAGE_SOURCES[config.name]) if config.name in IMAGE_SOURCES else ()


def read_id_mapping(path: Path) -> Mapping[str, str]:
    """The file of each image id, relative to the images' folder.

    Raises:
        DataError: the file is missing, or is not a JSON object from ids to relative paths.
    """
    stored = read_json(path)
    if not isinstance(stored, dict) or not stored:
        raise DataError(f"{path} must be an object from image ids to file names")
    for name, file in stored.items():
        if not isinstance(file, str) or not file or file.startswith("/") or ".." in PurePosixPath(file).parts:
            raise DataError(f"{path}: id {name} must have a file name below the images' folder, got {file!r}")
    return stored


def file_names(ids: Sequence[str], mapping: Mapping[str, str], path: Path) -> list[str]:
    """The file of each id, a relative path.

    Raises:
        DataError: the mapping lacks ids; the message counts them and names the first.
    """
    unknown = [name for name in ids if name not in mapping]
    if unknown:
        raise DataError(
            f"{path} has no file name for {len(unknown)} of {len(ids)} image ids, the first is {unknown[0]}"
        )
    return [str(PurePosixPath(mapping[name])) for name in ids]
