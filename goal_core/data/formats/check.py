"""What of a dataset is present, missing or of the wrong shape. Everything is looked at; nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from goal_core.data.config import DataConfig, IdMappedConfig, KarpathyConfig, RegionsConfig, XvlmJsonConfig
from goal_core.data.dataset import open_dataset
from goal_core.data.formats.caption_files import captions_per_image, image_ids, precomp_folder, read_lines, split_files
from goal_core.data.formats.check_raw import check_id_mapped, check_images, check_xvlm_json
from goal_core.data.formats.data_report import DataReport, State
from goal_core.data.formats.karpathy import check_records, find_annotations, read_annotations, select_records
from goal_core.data.formats.published import (
    PUBLISHED_COUNTS,
    PUBLISHED_REGIONS,
    SplitCounts,
    how_to_obtain,
    published_counts,
)
from goal_core.data.formats.regions import RegionFile, RegionRows, check_apart, check_same_shape, read_region_header
from goal_core.data.split import SPLIT_NAMES, Split
from goal_core.errors import DataError

Progress = Callable[[int, int], None]
"""Told how many images or regions have been read, of how many."""

_UNREADABLE_SHOWN = 20
_CHUNK = 64


def check_data(config: DataConfig, *, quick: bool = False, progress: Progress = lambda done, total: None) -> DataReport:
    """Look at everything a sweep needs of its data.

    Args:
        config: the dataset.
        quick: do not read the images and regions themselves, only their presence and size.
        progress: called while they are read.

    Returns:
        What is there and what is not; no error is raised for the data's sake.
    """
    report = DataReport(name=config.name)
    if isinstance(config, RegionsConfig):
        _check_regions(config, report)
    elif isinstance(config, KarpathyConfig):
        _check_karpathy(config, report)
    elif isinstance(config, XvlmJsonConfig):
        check_xvlm_json(config, report)
    elif isinstance(config, IdMappedConfig):
        check_id_mapped(config, report)
    dataset = report.attempt("dataset", lambda: open_dataset(config)) if report.complete else None
    if dataset is not None:
        if not report.findings:
            for name, split in dataset.splits.items():
                found = SplitCounts(images=split.num_images, captions=split.num_captions)
                report.counts(name, found, published_counts(config).get(name))
        if quick:
            report.note("content", "ok", "not read (--quick)")
        else:
            _read_all(list(dataset.splits.values()), report, progress)
    if not report.complete:
        report.obtain = how_to_obtain(config)
    return report


def _check_karpathy(config: KarpathyConfig, report: DataReport) -> None:
    root = Path(config.root).expanduser()
    if not root.is_dir():
        report.note(root.name, "missing", f"dataset folder not found: {root}")
        return
    path = report.attempt("annotations", lambda: find_annotations(root, config.annotations))
    if path is None:
        return
    read = report.attempt(path.name, lambda: read_annotations(path, config.max_captions))
    if read is None:
        return
    records = select_records(read, config.max_val_images)
    report.note(path.name, "ok", f"{len(records):,} images")
    report.attempt(path.name, lambda: check_records(records, path))
    for name in SPLIT_NAMES:
        mine = [record for record in records if record.split == name]
        found = SplitCounts(images=len(mine), captions=sum(len(record.captions) for record in mine))
        report.counts(name, found, published_counts(config).get(name))
    check_images(root, [(record.folder, record.file_name) for record in records], report)


def _check_regions(config: RegionsConfig, report: DataReport) -> None:
    root = Path(config.root).expanduser()
    folder = report.attempt(root.name, lambda: precomp_folder(root))
    if folder is None:
        return
    splits: dict[str, RegionRows] = {}
    files: list[RegionFile] = []
    for name, word in split_files(config.test_file).items():
        file, ids = _check_region_split(folder, word, name, config, report)
        files += [file] if file is not None else []
        if file is not None and ids is not None:
            used = ids[: config.max_val_images or None] if name == "val" else ids
            splits[name] = RegionRows(file=file, ids=used)
    report.attempt("features", lambda: check_same_shape(files))
    report.attempt("ids", lambda: check_apart(splits))


def _check_region_split(
    folder: Path, word: str, name: str, config: RegionsConfig, report: DataReport
) -> tuple[RegionFile | None, tuple[str, ...] | None]:
    ims, caps, ids = (folder / f"{word}_{end}" for end in ("ims.npy", "caps.txt", "ids.txt"))
    published = PUBLISHED_COUNTS.get(config.name, {}).get(name) if _is_whole(config, name) else None
    file = report.attempt(ims.name, lambda: read_region_header(ims))
    captions = report.attempt(caps.name, lambda: read_lines(caps))
    listed = report.attempt(ids.name, lambda: read_lines(ids))
    if file is not None:
        shown = f"shape {file.shape}, {np.dtype(file.dtype)}, {file.version[0] / 1e9:.2f} GB"
        wanted = "" if published is None else f"shape {(published.images, *PUBLISHED_REGIONS)}"
        # Other features of the published images are as good; fewer images are not.
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


def _is_whole(config: RegionsConfig, name: str) -> bool:
    """Whether the size of these files is published: COCO's `test` files hold an unstated part of `testall`."""
    return not (config.name == "coco" and name == "test" and config.test_file == "test")


def _read_all(splits: Sequence[Split], report: DataReport, progress: Progress) -> None:
    """Read every image or region as training does, and name each that cannot be read."""
    total, done, bad = sum(split.num_images for split in splits), 0, 0
    for split in splits:
        for count, problems in _problems(split):
            done += count
            progress(done, total)
            for problem in problems:
                bad += 1
                if bad <= _UNREADABLE_SHOWN:
                    report.note(split.name, "wrong", problem)
    what = "regions of all images" if splits[0].region_shape else "all images"
    if bad > _UNREADABLE_SHOWN:
        report.note("content", "wrong", f"{bad - _UNREADABLE_SHOWN} more cannot be read")
    elif not bad:
        report.note("content", "ok", f"{what} read, {total:,}")


def _problems(split: Split) -> Iterator[tuple[int, list[str]]]:
    """For each few images of a split their number and what is wrong with them."""
    parts = np.array_split(np.arange(split.num_images), -(-split.num_images // _CHUNK))

    def of_image(index: int) -> str:
        try:
            split.load_image(index)
        except DataError as error:
            return str(error)
        return ""

    def of_regions(index: int) -> str:
        try:
            split.load_regions(np.array([index]))
        except DataError as error:
            return str(error)
        return ""

    # Pillow decodes outside of Python's lock, so threads use all cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        look = of_regions if split.region_shape else of_image
        for part in parts:
            yield len(part), [problem for problem in pool.map(look, part.tolist()) if problem]
