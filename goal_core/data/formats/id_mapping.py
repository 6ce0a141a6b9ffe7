"""VSE-infinity's folder of raw images: captions and ids in text files, and the file of each id in `id_mapping.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from goal_core.basics.errors import DataError
from goal_core.data.config import IdMappedConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_core.data.formats import raw_images as raw
from goal_core.data.formats.caption_files import CaptionFiles, precomp_folder, read_caption_files, split_files
from goal_core.data.formats.format import DataReport, DatasetFormat, SplitCounts, first_val, published_files


class IdMapping(DatasetFormat[IdMappedConfig]):
    """`data.format: id_mapping`."""

    name = "id_mapping"
    source = "id_mapping.json and precomp/: the data folder that VSE-infinity's README links"

    def open(self, config: IdMappedConfig) -> Dataset:
        """Read captions, ids and the mapping, and check that every image file exists."""
        root = Path(config.root).expanduser()
        folder, words = precomp_folder(config.root), split_files(config.test_file)
        texts = {split: read_caption_files(folder, words[split]) for split in SPLIT_NAMES}
        texts["val"] = texts["val"].first(config.max_val_images)
        path = root / "id_mapping.json"
        mapping = _read_mapping(path)
        names = {split: _names(texts[split].ids, mapping, path) for split in SPLIT_NAMES}
        raw.check_once(names, f" of {path}")
        files = [file for split in SPLIT_NAMES for file in raw.find_images(root, names[split])]
        records = [
            raw.ImageRecord(split=split, name=name, captions=captions)
            for split in SPLIT_NAMES
            for name, captions in zip(names[split], texts[split].captions, strict=True)
        ]
        return raw.image_dataset(config, records, files)

    def check(self, config: IdMappedConfig, report: DataReport) -> None:
        """Report on every text file, the mapping, and every folder of images."""
        root = Path(config.root).expanduser()
        folder = report.attempt(root.name, lambda: precomp_folder(config.root))
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
        mapping = report.attempt(path.name, lambda: _read_mapping(path))
        if mapping is None:
            return
        report.note(path.name, "ok", f"{len(mapping):,} ids")
        names: dict[str, list[str]] = {}
        for split, text in texts.items():
            named = report.attempt(path.name, partial(_names, text.ids, mapping, path))
            if named is not None:
                names[split] = named
        report.attempt(path.name, lambda: raw.check_once(names, f" of {path}"))
        raw.check_images(root, [name for listed in names.values() for name in listed], report)

    def published_counts(self, config: IdMappedConfig) -> Mapping[str, SplitCounts]:
        """The counts of Karpathy's splits."""
        return first_val(published_files(config), config.max_val_images)


def _read_mapping(path: Path) -> Mapping[str, str]:
    """The name of each id's image, relative to the images' folder."""
    stored = raw.read_json(path)
    if not isinstance(stored, dict) or not stored:
        raise DataError(f"{path} must be an object from image ids to file names")
    for key, name in stored.items():
        if not isinstance(name, str) or not name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise DataError(f"{path}: id {key} must have a file name below the images' folder, got {name!r}")
    return stored


def _names(ids: Sequence[str], mapping: Mapping[str, str], path: Path) -> list[str]:
    """The name of each id's image."""
    unknown = [key for key in ids if key not in mapping]
    if unknown:
        raise DataError(
            f"{path} has no file name for {len(unknown)} of {len(ids)} image ids, the first is {unknown[0]}"
        )
    return [str(PurePosixPath(mapping[key])) for key in ids]
