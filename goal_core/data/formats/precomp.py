"""One precomputed vector for each image, with captions, in the layout of VSE++'s `*_precomp` folders.

Source: `PrecompDataset` in the published code of VSE++ (Faghri et al., BMVC 2018), which SCAN's layout extends by ids.
There it is five captions for each image; here it is any number, the same for all images unless an ids file gives each
its own.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.errors import DataError
from goal_core.data.config import PrecompConfig
from goal_core.data.dataset import SPLIT_NAMES, Dataset, Split, fingerprint_of, split_of
from goal_core.data.formats import caption_files as texts
from goal_core.data.formats.format import DataReport, DatasetFormat, SplitCounts, first_val, published_files
from goal_core.data.formats.region_files import RegionFile, RegionRows, read_region_header

_BLOCK = 4096
"""Rows that are read at a time."""
_CAPTIONS = 5
"""Captions of an image in the published datasets."""

_OWN_FEATURES = (
    "vectors of any timm backbone can be computed from the images: "
    "goal-sweep data features SWEEP --kind vectors --out FOLDER"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What one split's files contain."""

    reader: RegionRows
    captions: tuple[tuple[str, ...], ...]
    has_ids: bool

    def first(self, num_images: int) -> _Files:
        """The same for the first images only; 0 keeps all."""
        if not num_images:
            return self
        return _Files(reader=self.reader.first(num_images), captions=self.captions[:num_images], has_ids=self.has_ids)

    def split(self, name: str, config: PrecompConfig) -> Split:
        """The split, with as many captions and words as the settings allow."""
        captions: Sequence[Sequence[str]] = self.captions
        if config.max_captions:
            captions = [several[: config.max_captions] for several in captions]
        if config.max_words:
            captions = [[" ".join(text.split()[: config.max_words]) for text in several] for several in captions]
        return split_of(name, captions, self.reader)


class Precomp(DatasetFormat[PrecompConfig]):
    """`data.format: precomp`."""

    name = "precomp"
    source = "vectors: the precomputed features of VSE++, http://www.cs.toronto.edu/~faghri/vsepp/data.tar"

    def open(self, config: PrecompConfig) -> Dataset:
        """Read captions and ids, and check them against the feature files.

        The fingerprint covers the captions and every number of the features. No image may be in two splits, and all
        vectors must have the same width.
        """
        folder = texts.precomp_folder(config.root)
        words = texts.split_files(config.test_file)
        read = {split: _read_split(folder, words[split]) for split in SPLIT_NAMES}
        read["val"] = read["val"].first(config.max_val_images)
        _check_same_width(read)
        _check_apart(read)
        splits = {name: files.split(name, config) for name, files in read.items()}
        return Dataset(
            name=config.name,
            splits=splits,
            fingerprint=fingerprint_of(None, config.min_word_count, _described(splits)),
        )

    def check(self, config: PrecompConfig, report: DataReport) -> None:
        """Report on the files of every split."""
        folder = report.attempt(config.root, lambda: texts.precomp_folder(config.root))
        if folder is None:
            return
        published, read = published_files(config), {}
        for split, word in texts.split_files(config.test_file).items():
            files = report.attempt(word, lambda word=word: _read_split(folder, word))  # type: ignore[misc]  # binds word
            if files is not None:
                read[split] = files
                report.note(f"{word}_ims.npy", "ok", f"shape {files.reader.file.shape}, {files.reader.file.dtype[1:]}")
                report.counts(split, SplitCounts.of(files.captions), published.get(split))
        report.attempt("features", lambda: _check_same_width(read))
        report.attempt("ids", lambda: _check_apart(read))

    def published_counts(self, config: PrecompConfig) -> Mapping[str, SplitCounts]:
        """The counts of Karpathy's splits, with as many captions as the settings allow."""
        counts = published_files(config)
        if 0 < config.max_captions < _CAPTIONS:
            counts = {
                split: SplitCounts(images=one.images, captions=one.images * config.max_captions)
                for split, one in counts.items()
            }
        return first_val(counts, config.max_val_images)

    def how_to_obtain(self, config: PrecompConfig) -> tuple[str, ...]:
        """Where published features come from, and how to compute others."""
        return (self.source, _OWN_FEATURES) if published_files(config) else (_OWN_FEATURES,)


def _read_split(folder: Path, word: str) -> _Files:
    """Read one split's files, and find out which rows and captions belong to an image.

    Raises:
        DataError: a file is missing or damaged, or the three do not fit each other.
    """
    file = read_region_header(folder / f"{word}_ims.npy", axes=("images", "features"))
    caps, ids = folder / f"{word}_caps.txt", folder / f"{word}_ids.txt"
    captions = texts.read_lines(caps)
    has_ids = ids.exists() or ids.with_name(f"{ids.name}.gz").exists()
    if has_ids:
        names, counts = _images_of(ids, texts.read_lines(ids), caps, len(captions))
    else:
        counts = _counts_without_ids(file, caps, len(captions), ids)
        names = tuple(map(str, range(len(counts))))
    line = iter(captions)
    return _Files(
        reader=RegionRows(file=file, ids=names, starts=_first_rows(file, counts, caps)),
        captions=tuple(tuple(itertools.islice(line, count)) for count in counts),
        has_ids=has_ids,
    )


def _images_of(path: Path, listed: list[str], caps: Path, num_captions: int) -> tuple[tuple[str, ...], list[int]]:
    """The id of each image and how many captions it has, from a list of one id per caption or one per image."""
    if len(listed) == num_captions:
        runs = [(name, len(list(lines))) for name, lines in itertools.groupby(listed)]
        names, counts = tuple(name for name, _ in runs), [count for _, count in runs]
    else:
        names, counts = tuple(listed), _equal_counts(caps, num_captions, len(listed), path)
    texts.check_distinct(path, names)
    return names, counts


def _equal_counts(caps: Path, num_captions: int, num_images: int, ids: Path) -> list[int]:
    """The same number of captions for each image."""
    try:
        return [texts.captions_per_image(caps, num_captions, num_images)] * num_images
    except DataError as error:
        raise DataError(f"{error}; {_remedy(caps, ids)}") from None


def _remedy(caps: Path, ids: Path) -> str:
    return f"if images have different numbers of captions, give the image's id for each line of {caps.name} in {ids}"


def _counts_without_ids(file: RegionFile, caps: Path, num_captions: int, ids: Path) -> list[int]:
    """How many captions each image has, by the number of rows and by which rows are equal.

    Where each caption has a row, equal neighbours are one image or several with equal rows. Rows that all repeat
    equally often are one image each; rows that repeat in multiples of five have the five captions of VSE++.

    Raises:
        DataError: the captions are not a multiple of the rows, or the rows repeat in another way.
    """
    rows = file.shape[0]
    if rows != num_captions:
        return _equal_counts(caps, num_captions, rows, ids)
    runs = _runs_of_equal_rows(file)
    step = math.gcd(*runs)
    if len(set(runs)) > 1 and step % _CAPTIONS:
        raise DataError(
            f"{file.path} has a row for each line of {caps.name}, and the rows repeat {min(runs)} to {max(runs)} "
            "times; equal neighbours may be one image or several that look the same, which only ids can tell: "
            f"give the image's id for each line of {caps.name} in {ids}"
        )
    return [step] * (rows // step)


def _runs_of_equal_rows(file: RegionFile) -> list[int]:
    """How many equal rows follow each other, in the order of the file."""
    rows, starts = file.mapped(), [0]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK + 1]
        starts += (start + 1 + np.flatnonzero(_differ(block[1:], block[:-1]))).tolist()
    return [end - start for start, end in itertools.pairwise([*starts, len(rows)])]


def _differ(one: NDArray[np.floating], other: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which rows differ, (B,); a number that is not finite is found later, and equals itself here."""
    differs: NDArray[np.bool_] = ((one != other) & ~(np.isnan(one) & np.isnan(other))).any(axis=1)
    return differs


def _first_rows(file: RegionFile, counts: list[int], caps: Path) -> tuple[int, ...]:
    """The first row of each image where the file repeats it for every caption; empty where it has one row per image.

    Raises:
        DataError: the file has neither, or the rows of an image differ.
    """
    num_rows = file.shape[0]
    if num_rows == len(counts):
        return ()
    if num_rows != sum(counts):
        raise DataError(
            f"{file.path} has {num_rows} rows, but must have one for each of the {len(counts)} images or for each of "
            f"the {sum(counts)} captions in {caps}"
        )
    rows, starts = file.mapped(), np.cumsum([0, *counts[:-1]])
    first = np.repeat(starts, counts)
    for start in range(0, num_rows, _BLOCK):
        here = slice(start, start + _BLOCK)
        odd = _differ(rows[here], rows[first[here]])
        if odd.any():
            image = int(np.searchsorted(starts, start + np.argmax(odd), side="right")) - 1
            raise DataError(
                f"rows {starts[image]} to {starts[image] + counts[image] - 1} of {file.path} belong to the "
                f"{counts[image]} captions of one image, but are not equal"
            )
    return tuple(starts.tolist())


def _check_same_width(read: Mapping[str, _Files]) -> None:
    """Check that one model can take the vectors of all splits."""
    files = [one.reader.file for one in read.values()]
    for file in files[1:]:
        if file.shape[1] != files[0].shape[1]:
            raise DataError(
                f"{file.path} has features of {file.shape[1]} numbers, but {files[0].path} of {files[0].shape[1]}"
            )


def _check_apart(read: Mapping[str, _Files]) -> None:
    """Check that no image is in two splits: equal ids with equal vectors (some files count from 0 in each split)."""
    named = {split: files.reader for split, files in read.items() if files.has_ids}
    for (first, one), (second, other) in itertools.combinations(named.items(), 2):
        row_of = {name: row for row, name in enumerate(one.ids)}
        for there, name in enumerate(other.ids):
            here = row_of.get(name)
            if here is not None and np.array_equal(one.rows(np.array([here])), other.rows(np.array([there]))):
                raise DataError(f"image {name} is in two splits, {first} and {second}, with the same features")


def _described(splits: Mapping[str, Split]) -> Iterator[list[object]]:
    for name, split in splits.items():
        reader = split.reader
        assert isinstance(reader, RegionRows)
        yield [name, split.num_images, list(reader.shape), reader.file.dtype, _digest(reader)]
        yield [name, split.caption_image.tolist(), split.captions]


@lru_cache(maxsize=16)
def _digest(reader: RegionRows) -> str:
    """SHA-256 of the vectors of all images of a split."""
    rows, digest = reader.file.mapped(), hashlib.sha256()
    for start in range(0, len(reader), _BLOCK):
        images = np.arange(start, min(start + _BLOCK, len(reader)))
        digest.update(np.ascontiguousarray(rows[reader.rows_of(images)]).tobytes())
    return digest.hexdigest()
