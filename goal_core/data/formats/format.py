"""The interface of a dataset format, and the report of a dataset check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data.config import SHIPPED, DataConfig, IdMappedConfig, PrecompConfig, RegionsConfig
from goal_core.data.dataset import Dataset, Split

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
    source: ClassVar[str] = ""
    """Where the published annotations of this layout come from, in words."""

    def open(self, config: C_contra) -> Dataset:
        """Read everything but the images and regions themselves; see :func:`goal_core.data.open_dataset`."""

    def check(self, config: C_contra, report: DataReport) -> None:
        """Report on each file and folder by itself, so that all problems show together."""

    def published_counts(self, config: C_contra) -> Mapping[str, SplitCounts]:
        """See :func:`goal_core.data.published_counts`."""

    def how_to_obtain(self, config: C_contra) -> tuple[str, ...]:
        """Where the published files come from, one line each; nothing is ever downloaded from there."""
        images = _IMAGE_SOURCES.get(config.name)
        return (self.source, images) if images else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One item that was checked."""

    item: str
    """A file or folder (by its name), a split, or the images' content."""
    state: State
    found: str
    """What was found, or what is wrong with it."""
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
        """Whether everything is present and has the right shape."""
        return all(finding.state == "ok" for finding in self.findings)

    def note(self, item: str, state: State, found: str, published: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(item=item, state=state, found=found, published=published))

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Return what ``act`` returns; where it raises a `DataError`, add that as a finding and return None."""
        try:
            return act()
        except DataError as error:
            self.note(item, "missing" if isinstance(error, MissingDataError) else "wrong", str(error))
            return None

    def compare(self, item: str, found: str, published: str | None, *, same: bool) -> None:
        """Add a finding with its published value, or None; it is wrong where the two are not the same."""
        self.note(item, "ok" if same or published is None else "wrong", found, published or "")

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """Add a split's size next to the published one."""
        self.compare(split, str(found), None if published is None else str(published), same=found == published)

    def read(self, dataset: Dataset, progress: Progress) -> None:
        """Read every image or region as training does, and add each that cannot be read."""
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
            shape = dataset.splits["train"].region_shape or ()
            what = ("all images", "vectors of all images", "regions of all images")[len(shape)]
            self.note("content", "ok", f"{what} read, {total:,}")


def _problems(split: Split) -> Iterator[tuple[int, list[str]]]:
    """The number of images in each chunk of a split, and the problems found in it."""

    def problem(index: int) -> str:
        try:
            if split.region_shape:
                split.load_regions(np.array([index]))
            else:
                split.load_image(index)
        except DataError as error:
            return str(error)
        return ""

    # Pillow releases Python's global lock while it decodes, so threads use all cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in np.array_split(np.arange(split.num_images), -(-split.num_images // _CHUNK)):
            yield len(part), [text for text in pool.map(problem, part.tolist()) if text]


SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"


def dataset_folder(root: str) -> Path:
    """The folder that ``data.root`` names.

    Raises:
        MissingDataError: it does not exist.
    """
    if root.startswith(SHIPPED):
        names = sorted(path.name for path in SHIPPED_FOLDER.iterdir() if path.is_dir())
        if root.removeprefix(SHIPPED) not in names:
            raise MissingDataError(f"no dataset {root!r} ships with goal-sweep; there is {SHIPPED}{', '.join(names)}")
        return SHIPPED_FOLDER / root.removeprefix(SHIPPED)
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise MissingDataError(f"dataset folder not found: {folder}")
    return folder


_SPLIT_SIZES = {
    "coco": {"train": 113_287, "val": 5_000, "test": 5_000},
    "f30k": {"train": 29_000, "val": 1_014, "test": 1_000},
}
"""Images of Karpathy's splits of COCO (train with restval) and Flickr30K, by the sweep's `data.name`."""

_IMAGE_SOURCES = {
    "coco": "images: http://images.cocodataset.org/zips/train2014.zip and val2014.zip, unpacked to images/train2014 "
    "and images/val2014 (about 20 GB)",
    "f30k": "images: flickr30k-images, on request through https://shannon.cs.illinois.edu/DenotationGraph/ "
    "(about 4 GB)",
}


def published_splits(name: str, captions_per_image: int = 5) -> dict[str, SplitCounts]:
    """Karpathy's splits of a published dataset, with a number of captions per image; empty for other datasets."""
    sizes = _SPLIT_SIZES.get(name, {})
    return {split: SplitCounts(images=size, captions=captions_per_image * size) for split, size in sizes.items()}


def published_files(config: IdMappedConfig | RegionsConfig | PrecompConfig) -> dict[str, SplitCounts]:
    """Published counts of the files that a dataset uses; the number of COCO images in its `test` files is unknown."""
    counts = published_splits(config.name)
    if config.name == "coco" and config.test_file == "test":
        del counts["test"]
    return counts


def first_val(counts: dict[str, SplitCounts], max_val_images: int) -> dict[str, SplitCounts]:
    """Counts of the splits when only the first ``max_val_images`` val images are used; 0 uses all."""
    if not counts or not 0 < max_val_images < counts["val"].images:
        return counts
    per_image = counts["val"].captions // counts["val"].images
    return {**counts, "val": SplitCounts(images=max_val_images, captions=max_val_images * per_image)}
