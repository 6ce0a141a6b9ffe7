"""Precomputed regions with their captions, in SCAN's and VSE-infinity's layout.

Source: the layout of SCAN (Lee et al. 2018) as VSE-infinity reads it, which loads whole files into memory.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from goal_core.basics.errors import DataError
from goal_core.data.config import RegionsConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset, fingerprint_of, split_of
from goal_core.data.formats import caption_files as texts
from goal_core.data.formats.format import DataReport, DatasetFormat, SplitCounts, first_val, published_files
from goal_core.data.formats.region_files import RegionFile, RegionRows, read_region_header

_SAMPLED_ROWS = 32
"""Rows of each file that are read before training; reading all of COCO's would take 33 GB."""

PUBLISHED_REGIONS = (36, 2048)
"""Bottom-up attention features: the 36 boxes of highest score, 2,048 numbers each (Anderson et al. 2018)."""

_OWN_FEATURES = "or write features of any timm backbone from the images: goal-sweep data features SWEEP --out FOLDER"


class Regions(DatasetFormat[RegionsConfig]):
    """`data.format: regions`."""

    name = "regions"
    source = (
        "regions: the precomputed bottom-up features of SCAN, "
        "https://www.kaggle.com/datasets/kuanghueilee/scan-features (COCO train 33.4 GB, Flickr30K train 8.6 GB)"
    )

    def open(self, config: RegionsConfig) -> Dataset:
        """Read captions and ids, and check them against the headers of the region files.

        The fingerprint covers captions, ids, shapes, and 32 evenly spread images of each file. No image may be in two
        splits, and all regions must have the same width.
        """
        folder = texts.precomp_folder(config.root)
        words = texts.split_files(config.test_file)
        files = {split: read_region_header(folder / f"{words[split]}_ims.npy") for split in SPLIT_NAMES}
        _check_same_width(list(files.values()))
        read = {split: texts.read_caption_files(folder, words[split], files[split].shape[0]) for split in SPLIT_NAMES}
        read["val"] = read["val"].first(config.max_val_images)
        readers = {split: RegionRows(file=files[split], ids=read[split].ids) for split in SPLIT_NAMES}
        _check_apart(readers)
        described = (record for split in SPLIT_NAMES for record in _described(split, files[split], read[split]))
        return Dataset(
            name=config.name,
            splits={split: split_of(split, read[split].captions, readers[split]) for split in SPLIT_NAMES},
            fingerprint=fingerprint_of(None, config.min_word_count, described),
        )

    def check(self, config: RegionsConfig, report: DataReport) -> None:
        """Report on every file of every split."""
        name = Path(config.root).expanduser().name
        folder = report.attempt(name, lambda: texts.precomp_folder(config.root))
        if folder is None:
            return
        splits: dict[str, RegionRows] = {}
        files: list[RegionFile] = []
        published = published_files(config)
        for split, word in texts.split_files(config.test_file).items():
            file, ids = _check_split(folder, word, published.get(split), report)
            files += [file] if file is not None else []
            if file is not None and ids is not None:
                used = ids[: config.max_val_images or None] if split == "val" else ids
                splits[split] = RegionRows(file=file, ids=used)
        report.attempt("features", lambda: _check_same_width(files))
        report.attempt("ids", lambda: _check_apart(splits))

    def published_counts(self, config: RegionsConfig) -> Mapping[str, SplitCounts]:
        """The counts of Karpathy's splits."""
        return first_val(published_files(config), config.max_val_images)

    def how_to_obtain(self, config: RegionsConfig) -> tuple[str, ...]:
        """Where published features come from, and how to compute others."""
        return (self.source, _OWN_FEATURES) if published_files(config) else (_OWN_FEATURES,)


def _check_same_width(files: Sequence[RegionFile]) -> None:
    """Check that one model can take the regions of all splits."""
    for file in files[1:]:
        if file.shape[2] != files[0].shape[2]:
            raise DataError(
                f"{file.path} has features of {file.shape[2]} numbers, but {files[0].path} of {files[0].shape[2]}"
            )


def _check_apart(splits: Mapping[str, RegionRows]) -> None:
    """Check that no image is in two splits under one id.

    Equal ids alone do not prove it, because some files count from 0 in each split. So one of the first
    :data:`_SAMPLED_ROWS` equal ids must have equal regions too.
    """
    for (first, one), (second, other) in itertools.combinations(splits.items(), 2):
        row_of = {name: row for row, name in enumerate(one.ids)}
        both = [(row_of[name], row, name) for row, name in enumerate(other.ids) if name in row_of]
        for here, there, name in both[:_SAMPLED_ROWS]:
            if np.array_equal(one.file.mapped()[here], other.file.mapped()[there]):
                raise DataError(
                    f"image {name} is listed twice: in splits {first} and {second}, with the same regions"
                    + (f"; {len(both)} ids are in both" if len(both) > 1 else "")
                )


def _check_split(
    folder: Path, word: str, published: SplitCounts | None, report: DataReport
) -> tuple[RegionFile | None, tuple[str, ...] | None]:
    """Report on a split's three files; returns the region file and the images' ids where they are valid."""
    ims, caps, ids = (folder / f"{word}_{end}" for end in ("ims.npy", "caps.txt", "ids.txt"))
    file = report.attempt(ims.name, lambda: read_region_header(ims))
    captions = report.attempt(caps.name, lambda: texts.read_lines(caps))
    listed = report.attempt(ids.name, lambda: texts.read_lines(ids))
    if file is not None:
        shown = f"shape {file.shape}, {np.dtype(file.dtype)}, {file.version[0] / 1e9:.2f} GB"
        wanted = None if published is None else f"shape {(published.images, *PUBLISHED_REGIONS)}"
        # Other features of the published images will do; fewer images will not.
        report.compare(ims.name, shown, wanted, same=published is not None and published.images == file.shape[0])
    if captions is not None:
        wanted = None if published is None else f"{published.captions:,} captions"
        same = published is not None and published.captions == len(captions)
        report.compare(caps.name, f"{len(captions):,} captions", wanted, same=same)
    if file is None or captions is None:
        return file, None
    images = file.shape[0]
    per_image = report.attempt(caps.name, lambda: texts.captions_per_image(caps, len(captions), images))
    if per_image is None or listed is None:
        return file, None
    kept = report.attempt(ids.name, lambda: texts.image_ids(ids, listed, images, per_image))
    if kept is not None:
        report.note(ids.name, "ok", f"{len(listed):,} ids of {len(kept):,} images")
    return file, kept


def _described(split: str, file: RegionFile, read: texts.CaptionFiles) -> list[object]:
    spread = np.unique(np.linspace(0, file.shape[0] - 1, _SAMPLED_ROWS).astype(np.int64))
    sample = np.ascontiguousarray(file.mapped()[spread])
    header = [split, list(file.shape), file.dtype, hashlib.sha256(sample.tobytes()).hexdigest()]
    return [header, *([split, image, captions] for image, captions in zip(read.ids, read.captions, strict=True))]
