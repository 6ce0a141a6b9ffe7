"""Open and check a dataset of any layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations
from typing import Any, TypeVar

import numpy as np

from goal_core.basics.errors import DataError
from goal_core.data.config import DataConfig, ScenesConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset, fingerprint_of, split_of
from goal_core.data.formats.image_files import FileReader, ImageFile, check_once, find_images
from goal_core.data.formats.json_files import karpathy, xvlm_json
from goal_core.data.formats.layout import Layout, Listing
from goal_core.data.formats.published import how_to_obtain, published_counts
from goal_core.data.formats.report import DataReport, Progress, SplitCounts, State
from goal_core.data.formats.text_files import features, id_mapped
from goal_core.data.scenes import open_scenes

T = TypeVar("T")

LAYOUTS: Mapping[str, Callable[[Any], Layout]] = {
    "karpathy": karpathy,
    "id_mapping": id_mapped,
    "xvlm_json": xvlm_json,
    "regions": features,
    "precomp": features,
}
"""By `data.format` in sweep files; `scenes` are drawn."""


def open_dataset(config: DataConfig) -> Dataset:
    """Read what a sweep file's `data` names and check it in full: layout, captions, splits, and that all files exist.

    No image is decoded. COCO (123,287 images) opens in a few seconds, most of which parse its JSON file.

    Raises:
        DataError: a folder or file is missing, the annotations are in the wrong layout, an image has no caption or is
            listed twice, a split is empty, or precomputed features are cut short or do not fit their captions. The
            message is one line that says which.
    """
    dataset = _opened(config, _Strict(name=config.name))
    assert dataset is not None  # a strict report raises
    return dataset


class _Strict(DataReport):
    """A report that raises the first fault, and lists nothing."""

    def note(self, item: str, state: State, found: str, published: str = "") -> None:
        """List nothing."""

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Return what ``act`` returns, and raise what it raises."""
        return act()


def check_data(config: DataConfig, *, quick: bool = False, progress: Progress = lambda done, total: None) -> DataReport:
    """Check everything that a sweep needs of its data, and report faults without raising; nothing is downloaded.

    Args:
        config: the dataset.
        quick: check only that images and regions are present and have the right size; do not read them.
        progress: called while they are read.
    """
    report = DataReport(name=config.name)
    dataset = _opened(config, report)
    if dataset is not None and quick:
        report.note("content", "ok", "not read (--quick)")
    elif dataset is not None:
        report.read(dataset, progress)
    if not report.complete:
        report.obtain = how_to_obtain(config)
    return report


def _opened(config: DataConfig, report: DataReport) -> Dataset | None:
    """The dataset, if nothing is wrong with its files; each split and folder is reported by itself.

    Its fingerprint covers the split, name and captions of each image, the corpus, and the number of bytes of each image
    file (a change of content that keeps it is not noticed) or the features themselves.
    """
    if isinstance(config, ScenesConfig):
        dataset = open_scenes(config)
        for drawn in dataset.splits.values():
            report.counts(drawn.name, SplitCounts(images=drawn.num_images, captions=drawn.num_captions), None)
        return dataset
    layout = report.attempt(config.root, lambda: LAYOUTS[config.format](config))
    if layout is None:
        return None
    listings: dict[str, Listing] = {}
    published = published_counts(config)
    for split in SPLIT_NAMES:
        listing = report.attempt(split, layout.splits[split])
        if listing is not None:
            used = getattr(config, "max_val_images", 0) if split == "val" else 0
            listings[split] = listing.first(used)
            report.counts(split, SplitCounts.of(listings[split].captions), published.get(split))
            if listing.features is not None:
                file = listing.features.file
                report.note(f"{split} features", "ok", f"shape {file.shape}, {np.dtype(file.dtype)}")
    files: dict[str, ImageFile] = {}
    if config.image is None:
        report.attempt("features", lambda: _check_features(listings))
    else:
        report.attempt("images", lambda: check_once({split: listing.names for split, listing in listings.items()}))
        files = find_images(layout.root, chain.from_iterable(listing.names for listing in listings.values()), report)
    return report.attempt("dataset", lambda: _dataset(config, layout, listings, files)) if report.complete else None


def _dataset(
    config: DataConfig, layout: Layout, listings: Mapping[str, Listing], files: Mapping[str, ImageFile]
) -> Dataset:
    splits = {}
    for split, listing in listings.items():
        rows = listing.features
        reader = FileReader.of([files[name] for name in listing.names]) if rows is None else rows
        splits[split] = split_of(split, listing.captions, reader)
    return Dataset(
        name=config.name,
        splits=splits,
        fingerprint=fingerprint_of(config.image, config.min_word_count, _described(layout, listings, files)),
        corpus=layout.corpus,
    )


def _described(layout: Layout, listings: Mapping[str, Listing], files: Mapping[str, ImageFile]) -> Iterator[object]:
    for split, listing in listings.items():
        if listing.features is not None:
            yield [split, *listing.features.described()]
        for name, captions in zip(listing.names, listing.captions, strict=True):
            yield [split, name, captions, files[name].size if listing.features is None else 0]
    if layout.corpus:
        yield ["vocabulary", layout.corpus]


def _check_features(listings: Mapping[str, Listing]) -> None:
    """Check that one model can take the features of all splits, and that no image is in two splits.

    Equal ids alone do not prove it, because some files count from 0 in each split: the first vectors must be equal too.

    Raises:
        DataError: they differ in width, or an image is in two splits.
    """
    rows = {split: listing.features for split, listing in listings.items() if listing.features is not None}
    for (first, ours), (second, others) in combinations(rows.items(), 2):
        width, other = ours.shape[-1], others.shape[-1]
        if width != other:
            raise DataError(f"{others.file.path} has features of {other} numbers, but {ours.file.path} of {width}")
        number_of = {name: number for number, name in enumerate(ours.ids)}
        both = [(number_of[name], number) for number, name in enumerate(others.ids) if name in number_of]
        if both:
            here, there = np.array(both, np.int64).T
            same = (ours.first_vectors(here) == others.first_vectors(there)).all(axis=1)
            if same.any():
                name = ours.ids[int(here[np.argmax(same)])]
                raise DataError(f"image {name} is in two splits, {first} and {second}, with the same features")
