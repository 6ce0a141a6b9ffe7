"""The report of a dataset check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data.dataset import Dataset, Split

State = Literal["ok", "missing", "wrong"]
T = TypeVar("T")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One item that was checked."""

    item: str
    """A file or folder (by its name), a split, or the images' content."""
    state: State
    found: str
    """Its size or shape, or what is wrong with it."""
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

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """Add a split's size next to the published one."""
        state: State = "ok" if published in (None, found) else "wrong"
        self.note(split, state, str(found), "" if published is None else str(published))

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
