"""Precomputed regions with their captions, in SCAN's and VSE-infinity's layout.

Source: the layout of SCAN (Lee et al. 2018) as VSE-infinity reads it, which loads whole files into memory.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from goal_core.data.config import RegionsConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset, fingerprint_of, split_of
from goal_core.data.formats.caption_files import (
    CaptionFiles,
    captions_per_image,
    image_ids,
    precomp_folder,
    read_caption_files,
    read_lines,
    split_files,
)
from goal_core.data.formats.format import (
    PUBLISHED_COUNTS,
    DataReport,
    DatasetFormat,
    SplitCounts,
    State,
    published_test_files,
)
from goal_core.data.formats.region_files import RegionFile, RegionRows, read_region_header
from goal_core.errors import DataError

_SAMPLED_ROWS = 32
"""Rows of each file that are looked at before training; all of COCO's would be 33 GB to read."""

PUBLISHED_REGIONS = (36, 2048)
"""Bottom-up attention features: the 36 boxes of highest score, 2,048 numbers each (Anderson et al. 2018)."""

_FEATURES = (
    "regions: the precomputed bottom-up features of SCAN, https://www.kaggle.com/datasets/kuanghueilee/scan-features "
    "(COCO train 33.4 GB, Flickr30K train 8.6 GB)"
)
_OWN_FEATURES = "or write features of any timm backbone from the images: goal-sweep data features SWEEP --out FOLDER"


class Regions(DatasetFormat[RegionsConfig]):
    """`data.format: regions`."""

    name = "regions"

    def open(self, config: RegionsConfig) -> Dataset:
        """Read captions and ids, and check them against the headers of the region files.

        The fingerprint covers captions, ids, shapes, and 32 evenly spread images of each file. No image may be in two
        splits, and all regions must have the same width.
        """
        folder = precomp_folder(Path(config.root).expanduser())
        words = split_files(config.test_file)
        files = {name: read_region_header(folder / f"{words[name]}_ims.npy") for name in SPLIT_NAMES}
        check_same_width(list(files.values()))
        texts = {name: read_caption_files(folder, words[name], files[name].shape[0]) for name in SPLIT_NAMES}
        texts["val"] = texts["val"].first(config.max_val_images)
        readers = {name: RegionRows(file=files[name], ids=texts[name].ids) for name in SPLIT_NAMES}
        check_apart(readers)
        described = (record for name in SPLIT_NAMES for record in _described(name, files[name], texts[name]))
        return Dataset(
            name=config.name,
            splits={name: split_of(name, texts[name].captions, readers[name]) for name in SPLIT_NAMES},
            fingerprint=fingerprint_of(None, config.min_word_count, described),
        )

    def check(self, config: RegionsConfig, report: DataReport) -> None:
        """Report on every file of every split."""
        root = Path(config.root).expanduser()
        folder = report.attempt(root.name, lambda: precomp_folder(root))
        if folder is None:
            return
        splits: dict[str, RegionRows] = {}
        files: list[RegionFile] = []
        for name, word in split_files(config.test_file).items():
            # Part of COCO's test images are in its `test` files; how many is not published.
            whole = config.name != "coco" or word != "test"
            published = PUBLISHED_COUNTS.get(config.name, {}).get(name) if whole else None
            file, ids = _check_split(folder, word, published, report)
            files += [file] if file is not None else []
            if file is not None and ids is not None:
                used = ids[: config.max_val_images or None] if name == "val" else ids
                splits[name] = RegionRows(file=file, ids=used)
        report.attempt("features", lambda: check_same_width(files))
        report.attempt("ids", lambda: check_apart(splits))

    def published_counts(self, config: RegionsConfig) -> Mapping[str, SplitCounts]:
        """Without the test split of COCO's `test` files, which hold a part of the 5,000 images."""
        return published_test_files(config)

    def how_to_obtain(self, config: RegionsConfig) -> tuple[str, ...]:
        """The features of SCAN, and features of one's own."""
        return (_FEATURES, _OWN_FEATURES) if config.name in PUBLISHED_COUNTS else (_OWN_FEATURES,)


def check_same_width(files: Sequence[RegionFile]) -> None:
    """Check that one model can take the regions of all splits.

    Raises:
        DataError: their widths differ.
    """
    for file in files[1:]:
        if file.shape[2] != files[0].shape[2]:
            raise DataError(
                f"{file.path} has features of {file.shape[2]} numbers, but {files[0].path} of {files[0].shape[2]}"
            )


def check_apart(splits: Mapping[str, RegionRows]) -> None:
    """Check that no image is in two splits under one id.

    Equal ids alone do not prove it, because some files count from 0 in each split. So one of the first
    :data:`_SAMPLED_ROWS` equal ids must have equal regions too.

    Raises:
        DataError: an image is in two splits under one id.
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
    """Report on a split's three files; returns the region file and the images' ids, where they are right."""
    ims, caps, ids = (folder / f"{word}_{end}" for end in ("ims.npy", "caps.txt", "ids.txt"))
    file = report.attempt(ims.name, lambda: read_region_header(ims))
    captions = report.attempt(caps.name, lambda: read_lines(caps))
    listed = report.attempt(ids.name, lambda: read_lines(ids))
    if file is not None:
        shown = f"shape {file.shape}, {np.dtype(file.dtype)}, {file.version[0] / 1e9:.2f} GB"
        wanted = "" if published is None else f"shape {(published.images, *PUBLISHED_REGIONS)}"
        # Other features of the published images will do; fewer images will not.
        state: State = "ok" if published is None or published.images == file.shape[0] else "wrong"
        report.note(ims.name, state, shown, wanted)
    if captions is not None:
        wanted = "" if published is None else f"{published.captions:,} captions"
        state = "ok" if published is None or published.captions == len(captions) else "wrong"
        report.note(caps.name, state, f"{len(captions):,} captions", wanted)
    kept: tuple[str, ...] | None = None
    if file is not None and captions is not None:
        images = file.shape[0]
        per_image = report.attempt(caps.name, lambda: captions_per_image(caps, len(captions), images))
        if per_image is not None and listed is not None:
            kept = report.attempt(ids.name, lambda: image_ids(ids, listed, images, per_image))
            if kept is not None:
                report.note(ids.name, "ok", f"{len(listed):,} ids of {len(kept):,} images")
    return file, kept


def _described(name: str, file: RegionFile, texts: CaptionFiles) -> list[object]:
    spread = np.unique(np.linspace(0, file.shape[0] - 1, _SAMPLED_ROWS).astype(np.int64))
    sample = np.ascontiguousarray(file.mapped()[spread])
    header = [name, list(file.shape), file.dtype, hashlib.sha256(sample.tobytes()).hexdigest()]
    return [header, *([name, image, captions] for image, captions in zip(texts.ids, texts.captions, strict=True))]
