"""What a dataset format does, and what the check of a dataset reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np

from goal_core.data.config import DataConfig, IdMappedConfig, RegionsConfig
from goal_core.data.dataset import Dataset, Split
from goal_core.errors import DataError

State = Literal["ok", "missing", "wrong"]
T = TypeVar("T")
C_contra = TypeVar("C_contra", bound=DataConfig, contravariant=True)

Progress = Callable[[int, int], None]
"""Receives how many images have been read, and how many there are."""

_PROBLEMS_SHOWN = 20
_CHUNK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCounts:
    """Size of one split."""

    images: int
    captions: int

    def __str__(self) -> str:
        return f"{self.images:,} images, {self.captions:,} captions"

    @classmethod
    def of(cls, captions_by_image: Iterable[Sequence[str]]) -> SplitCounts:
        """Count the captions of each image."""
        counts = [len(captions) for captions in captions_by_image]
        return cls(images=len(counts), captions=sum(counts))


class DatasetFormat(Protocol[C_contra]):
    """One layout that datasets come in."""

    name: ClassVar[str]
    """As `data.format` in sweep files."""

    def open(self, config: C_contra) -> Dataset:
        """Read the data in full, except the pixels and regions themselves.

        Raises:
            DataError: see :func:`goal_core.data.open_dataset`.
        """

    def check(self, config: C_contra, report: DataReport) -> None:
        """Report on each file and folder by itself, so that all problems show together."""

    def published_counts(self, config: C_contra) -> Mapping[str, SplitCounts]:
        """See :func:`goal_core.data.published_counts`."""
        return {}

    def how_to_obtain(self, config: C_contra) -> tuple[str, ...]:
        """Where the files come from, one line each; nothing is ever downloaded from there."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    item: str
    """A file or folder (by its name), a split, or the images' content."""
    state: State
    found: str
    """What is there, or what is wrong with it."""
    published: str = ""
    """What the published dataset has there; empty where nothing is published."""


@dataclass(slots=True, kw_only=True)
class DataReport:
    """All findings about a dataset."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    obtain: tuple[str, ...] = ()
    """Where the files come from, one line each; given when something is missing or wrong."""

    @property
    def complete(self) -> bool:
        """Whether everything is present and of the right shape."""
        return all(finding.state == "ok" for finding in self.findings)

    def note(self, item: str, state: State, found: str, published: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(item=item, state=state, found=found, published=published))

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Return what ``act`` returns; where it raises a `DataError`, add that as a finding and return None."""
        try:
            return act()
        except DataError as error:
            absent = any(words in str(error) for words in ("missing", "not found", "no annotation file"))
            self.note(item, "missing" if absent else "wrong", str(error))
            return None

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """Add a split's size beside the published one."""
        shown = "" if published is None else str(published)
        self.note(split, "ok" if published in (None, found) else "wrong", str(found), shown)

    def read(self, dataset: Dataset, progress: Progress) -> None:
        """Read every image or region as training does, and report each that cannot be read."""
        splits = dataset.splits.values()
        total, done, bad = sum(split.num_images for split in splits), 0, 0
        for split in splits:
            for count, problems in _problems(split):
                done += count
                progress(done, total)
                for problem in problems:
                    bad += 1
                    if bad <= _PROBLEMS_SHOWN:
                        self.note(split.name, "wrong", problem)
        if bad > _PROBLEMS_SHOWN:
            self.note("content", "wrong", f"{bad - _PROBLEMS_SHOWN} more cannot be read")
        elif not bad:
            what = "regions of all images" if dataset.splits["train"].region_shape else "all images"
            self.note("content", "ok", f"{what} read, {total:,}")


def _problems(split: Split) -> Iterator[tuple[int, list[str]]]:
    """For each few images of a split, how many they are and what is wrong with them."""

    def problem(index: int) -> str:
        try:
            if split.region_shape:
                split.load_regions(np.array([index]))
            else:
                split.load_image(index)
        except DataError as error:
            return str(error)
        return ""

    # Pillow decodes outside of Python's lock, so threads use all cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in np.array_split(np.arange(split.num_images), -(-split.num_images // _CHUNK)):
            yield len(part), [text for text in pool.map(problem, part.tolist()) if text]


def _five(images: int) -> SplitCounts:
    return SplitCounts(images=images, captions=5 * images)


PUBLISHED_COUNTS: Mapping[str, Mapping[str, SplitCounts]] = MappingProxyType(
    {
        "coco": {"train": _five(113_287), "val": _five(5_000), "test": _five(5_000)},
        "f30k": {"train": _five(29_000), "val": _five(1_014), "test": _five(1_000)},
    }
)
"""Karpathy's splits of COCO (train with restval) and Flickr30K, five captions per image, by the sweep's `data.name`."""

IMAGE_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "coco": "images: http://images.cocodataset.org/zips/train2014.zip and val2014.zip, unpacked to "
        "images/train2014 and images/val2014 (about 20 GB)",
        "f30k": "images: flickr30k-images, on request through https://shannon.cs.illinois.edu/DenotationGraph/ "
        "(about 4 GB)",
    }
)
"""Where the published datasets' images come from, by the sweep's `data.name`."""


def first_val(counts: Mapping[str, SplitCounts], max_val_images: int) -> Mapping[str, SplitCounts]:
    """Counts of the splits when only the first ``max_val_images`` val images are used; 0 keeps all."""
    if not counts or not 0 < max_val_images < counts["val"].images:
        return counts
    per_image = counts["val"].captions // counts["val"].images
    return {**counts, "val": SplitCounts(images=max_val_images, captions=max_val_images * per_image)}


def published_test_files(config: IdMappedConfig | RegionsConfig) -> Mapping[str, SplitCounts]:
    """Published counts of a dataset whose test files are a setting.

    COCO's `test` files hold a part of the 5,000 images whose size is not stated, so their split is left out.
    """
    counts = dict(PUBLISHED_COUNTS.get(config.name, {}))
    if config.name == "coco" and config.test_file == "test":
        del counts["test"]
    return first_val(counts, config.max_val_images)
