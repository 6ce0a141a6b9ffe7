"""Open and check a dataset of any layout: by its index, which is made from its files where there is none yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import chain, combinations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.errors import DataError
from goal_core.data.config import DataConfig, ScenesConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_core.data.formats.columns import Texts
from goal_core.data.formats.embeddings import embeddings
from goal_core.data.formats.features import RegionFile
from goal_core.data.formats.image_files import FileReader, check_once, digests_of, find_images
from goal_core.data.formats.index import VERSION, Index, columns_of, index_path, keep_index, stamp_of, stored_index
from goal_core.data.formats.json_files import karpathy, xvlm_json
from goal_core.data.formats.layout import Layout, Listing
from goal_core.data.formats.published import how_to_obtain, published_counts
from goal_core.data.formats.report import DataReport, Progress, SplitCounts, State
from goal_core.data.formats.sources import source
from goal_core.data.formats.text_files import features, id_mapped
from goal_core.data.scenes import open_scenes

T = TypeVar("T")

LAYOUTS: Mapping[str, Callable[[Any], Layout]] = {
    "karpathy": karpathy,
    "id_mapping": id_mapped,
    "xvlm_json": xvlm_json,
    "regions": features,
    "precomp": features,
    "source": source,
    "embeddings": embeddings,
}
"""By `data.format` in sweep files; `scenes` are drawn."""


def open_dataset(
    config: DataConfig,
    indexes: Path | None = None,
    *,
    renew: bool = True,
    progress: Progress = lambda done, total: None,
) -> Dataset:
    """Open what a sweep file's `data` names.

    Where its index is kept already, its columns are mapped: nothing is parsed, and files are read when they are needed.
    Otherwise the annotations are parsed and checked in full, and every image and feature is read once, for its digest.

    Args:
        config: the dataset.
        indexes: the folder of all indexes; None keeps none.
        renew: look at every image, and read those again whose size or times changed. Without it only the files that are
            parsed are looked at; images that changed are noticed when they are read.
        progress: called while images are read for their digests.

    Raises:
        DataError: a folder or file is missing, the annotations are in the wrong layout, an image has no caption or is
            listed twice, a split is empty, or precomputed features are cut short or do not fit their captions. The
            message is one line that says which.
    """
    if isinstance(config, ScenesConfig):
        return open_scenes(config)
    path = None if indexes is None else index_path(config, indexes)
    known, report = None if path is None else stored_index(path)[0], _Strict(name=config.name)
    if known is not None and known.is_current(thorough=renew):
        return known.dataset(config)
    index = _indexed(config, report, known, progress)
    assert index is not None  # a strict report raises
    if path is not None:
        keep_index(index, path)
    return index.dataset(config)


class _Strict(DataReport):
    """A report that raises the first fault, and lists nothing."""

    def note(self, item: str, state: State, found: str, published: str = "") -> None:
        """List nothing, and raise what is wrong."""
        if state != "ok":
            raise DataError(found)

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """List nothing: data may differ from what was published under their name."""

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Return what ``act`` returns, and raise what it raises."""
        return act()


def check_data(config: DataConfig, *, quick: bool = False, progress: Progress = lambda done, total: None) -> DataReport:
    """Check everything that a sweep needs of its data, and report faults without raising; nothing is downloaded.

    Args:
        config: the dataset.
        quick: check only that images and regions are present; do not read them.
        progress: called while they are read.
    """
    report = DataReport(name=config.name)
    if isinstance(config, ScenesConfig):
        dataset: Dataset | None = open_scenes(config)
        for drawn in dataset.splits.values() if dataset else ():
            report.counts(drawn.name, SplitCounts(images=drawn.num_images, captions=drawn.num_captions), None)
    else:
        index = _indexed(config, report, None, progress, read=not quick)
        dataset = None if index is None or quick else index.dataset(config)
    if quick and report.complete:
        report.note("content", "ok", "not read (--quick)")
    elif dataset is not None:
        report.read(dataset, progress)
    if not report.complete:
        report.obtain = how_to_obtain(config)
    return report


def _indexed(
    config: DataConfig, report: DataReport, known: Index | None, progress: Progress, *, read: bool = True
) -> Index | None:
    """The index of the files as they are now, if nothing is wrong with them; each split and folder is reported.

    Args:
        config: the dataset.
        report: receives what is found.
        known: an earlier index; images whose size and times are still those are not read again.
        progress: called while images are read.
        read: without it the index has no digests.
    """
    layout = report.attempt(config.root or "", lambda: LAYOUTS[config.format](config))
    if layout is None:
        return None
    if layout.says:
        report.note(config.root or "", "ok", layout.says)
    sources = [[str(path), *(stamp_of(str(path)) or [])] for path in layout.files]  # before they are read
    listings: dict[str, Listing] = {}
    published = published_counts(config)
    for split in SPLIT_NAMES:
        listing = report.attempt(split, layout.splits[split])
        if listing is not None:
            listings[split] = listing.first(getattr(config, "max_val_images", 0) if split == "val" else 0)
            report.counts(split, SplitCounts.of(listings[split].captions), published.get(split))
            if listing.features is not None:
                file = listing.features
                report.note(f"{split} features", "ok", f"shape {file.shape}, {np.dtype(file.dtype)}")
            if not listing.names:
                report.note(split, "wrong", f"split {split!r} has no images")
    arrays: dict[str, NDArray[Any]] = {}
    texts: dict[str, Texts] = {}
    if config.image is not None:
        report.attempt("images", lambda: check_once({split: listing.names for split, listing in listings.items()}))
        _place_images(layout.root, listings, report, texts, arrays)
    if not report.complete:
        return None
    for split, listing in listings.items():
        texts |= {f"{split}.names": Texts.of(listing.names)}
        texts |= {f"{split}.captions": Texts.of(chain.from_iterable(listing.captions))}
        counts = [len(captions) for captions in listing.captions]
        if 0 in counts:
            report.note(split, "wrong", f"image {listing.names[counts.index(0)]} of split {split!r} has no captions")
        arrays[f"{split}.owners"] = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        if listing.features is not None:
            arrays[f"{split}.rows"] = np.array(listing.rows or range(len(listing.names)), np.int64)
    if layout.corpus:
        texts["corpus"] = Texts.of(layout.corpus)
    files = {split: listing.features for split, listing in listings.items() if listing.features is not None}
    about = {
        **{"version": VERSION, "root": str(layout.root), "sources": sources},
        "features": {split: asdict(one) for split, one in files.items()},
        "texts": {split: asdict(one.texts) for split, one in listings.items() if one.texts is not None},
    }
    index = Index(columns_of(texts, arrays), about)
    if not (read and report.complete):
        return index if report.complete else None
    digests = report.attempt("content", lambda: _digests(index, files, known, progress))
    if digests is None:
        return None
    index = Index({**index.columns, **digests}, about)
    if files:
        report.attempt("features", lambda: _check_features(index))
    return index if report.complete else None


def _place_images(
    root: Path,
    listings: Mapping[str, Listing],
    report: DataReport,
    texts: dict[str, Texts],
    arrays: dict[str, NDArray[Any]],
) -> None:
    """Find the file of each image, or where it lies in a shard."""
    whole = {split: listing for split, listing in listings.items() if not listing.spans}
    files = find_images(root, chain.from_iterable(listing.names for listing in whole.values()), report)
    if not report.complete:
        return
    for split, listing in listings.items():
        if listing.spans:
            texts[f"{split}.paths"] = Texts.of(path for path, _, _ in listing.spans)
            arrays[f"{split}.spans"] = np.array([span[1:] for span in listing.spans], np.int64)
        else:
            found = [files[name] for name in listing.names]
            texts[f"{split}.paths"] = Texts.of(file.path for file in found)
            arrays[f"{split}.status"] = np.array([file.stamp for file in found], np.int64).reshape(len(found), 3)


def _digests(
    index: Index, files: Mapping[str, Any], known: Index | None, progress: Progress
) -> dict[str, NDArray[np.uint8]]:
    """The digest of every image and feature row, those of an earlier index where their files are still the same."""
    total = sum(len(index.texts(f"{split}.names")) for split in SPLIT_NAMES)
    done, found = 0, dict[str, NDArray[np.uint8]]()

    def count(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    for split in SPLIT_NAMES:
        if split in index.about["texts"]:
            file = RegionFile.of(index.about["texts"][split])
            found[f"{split}.text_digests"] = file.digests(np.arange(file.shape[0]))
        if split in files:
            found[f"{split}.digests"] = files[split].digests(index.columns[f"{split}.rows"], count)
            continue
        paths, spans = index.texts(f"{split}.paths"), index.columns.get(f"{split}.spans")
        digests = np.empty((len(paths), 32), np.uint8)
        earlier = (
            _earlier(known, split) if spans is None and known and known.about["root"] == index.about["root"] else {}
        )
        todo = []
        for number, path in enumerate(paths):
            before = earlier.get((path, *index.columns[f"{split}.status"][number].tolist())) if earlier else None
            if before is None:
                todo.append(number)
            else:
                digests[number] = before
        count(len(paths) - len(todo))
        digests[todo] = digests_of(FileReader(index.about["root"], paths, digests, spans), todo, count)
        found[f"{split}.digests"] = digests
    return found


def _earlier(known: Index, split: str) -> dict[tuple[str | int, ...], NDArray[np.uint8]]:
    """The digests of an earlier index by path, size and times."""
    if f"{split}.status" not in known.columns:
        return {}
    status, digests = known.columns[f"{split}.status"].tolist(), known.columns[f"{split}.digests"]
    paths = known.texts(f"{split}.paths")
    return {(path, *own): digest for path, own, digest in zip(paths, status, digests, strict=True)}


def _check_features(index: Index) -> None:
    """Check that one model can take the features of all splits, and that no image is in two splits.

    Equal ids alone do not prove it, because some files count from 0 in each split: the features must be equal too.

    Raises:
        DataError: they differ in width, or an image is in two splits.
    """
    files = index.about["features"]
    for first, second in combinations(files, 2):
        width, other = files[first]["shape"][-1], files[second]["shape"][-1]
        if width != other:
            raise DataError(
                f"{files[second]['path']} has features of {other} numbers, but {files[first]['path']} of {width}"
            )
        ours, theirs = (
            {(name, digest.tobytes()) for name, digest in zip(index.texts(f"{split}.names"), rows, strict=True)}
            for split, rows in ((split, index.columns[f"{split}.digests"]) for split in (first, second))
        )
        if both := sorted(ours & theirs):
            name = both[0][0]
            raise DataError(f"image {name} is in two splits, {first} and {second}, with the same features")
