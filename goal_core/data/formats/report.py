"""The report of a dataset check, and the sizes and sources of the published datasets beside which it is read."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from goal_sweep.goal_core.basics.errors import DataError, MissingDataError
from goal_sweep.goal_core.data.config import DataConfig, KarpathyConfig, ScenesConfig, XvlmJsonConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES

State = Literal["ok", "note", "missing", "wrong"]
"""Whether all is well, well with something to know, or not."""
FAULTS = ("missing", "wrong")
T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Receives how many images have been read, and how many there are."""
_PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCounts:
    """Size of one split."""

    images: int
    captions: int

    def __str__(self) -> str:
        return f"{self.images:,} images, {self.captions:,} captions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One item that was checked: a file or folder (by its name), a split, or the images' content."""

    item: str
    state: State
    found: str
    """Its size or shape, what is to be known of it, or what is wrong with it."""
    published: str = ""
    """What the published dataset has there; empty where nothing is published."""
    key: str = ""
    """The setting that is wrong, if it is one."""


@dataclass(slots=True, kw_only=True)
class DataReport:
    """All findings about a dataset."""

    name: str
    raises: bool = False
    """Whether the first fault is raised as a `DataError`; data may then have other sizes than were published."""
    needed: Collection[str] = SPLIT_NAMES
    """The splits that must have images."""
    findings: list[Finding] = field(default_factory=list)
    fingerprint: str = ""
    """Of the data as they were read now; empty where they were not read, or are not complete."""

    @property
    def complete(self) -> bool:
        """Whether everything is present and has the right shape."""
        return not any(finding.state in FAULTS for finding in self.findings)

    def note(self, item: str, state: State, found: str, published: str = "", key: str = "") -> None:
        """Add a finding."""
        if self.raises and state in FAULTS:
            raise DataError(found)
        self.findings.append(Finding(item=item, state=state, found=found, published=published, key=key))

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Return what ``act`` returns; where it raises a `DataError`, add that as a finding and return None."""
        try:
            return act()
        except DataError as error:
            if self.raises:
                raise
            self.note(item, "missing" if isinstance(error, MissingDataError) else "wrong", str(error), key=error.key)
            return None

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """Add a split's size next to the published one."""
        is_right = self.raises or published in (None, found)
        self.note(split, "ok" if is_right else "wrong", str(found), str(published or ""))

    def content(self, what: str, problems: list[str]) -> None:
        """Add what was wrong with images and features when they were read; else what was read."""
        more = len(problems) - _PROBLEMS_SHOWN
        for problem in [*problems[:_PROBLEMS_SHOWN], *([f"{more} more cannot be read"] if more > 0 else ())]:
            self.note("content", "wrong", problem)
        if not problems:
            self.note("content", "ok", what)


_IMAGES = {
    "coco": {"train": 113_287, "val": 5_000, "test": 5_000},
    "f30k": {"train": 29_000, "val": 1_014, "test": 1_000},
}
"""Images of Karpathy's splits of COCO (train with restval) and Flickr30K, by the sweep's `data.name`."""
_CAPTIONS = 5
"""Captions of an image, but for some images of COCO."""
_XVLM_COCO_CAPTIONS = {"train": 566_747, "val": 25_010, "test": 25_010}
"""X-VLM's files contain every caption of COCO, where some images have six or seven."""


def published_counts(config: DataConfig) -> dict[str, SplitCounts]:
    """Size of the published splits of `coco` and `f30k`, counting the images and captions that the settings use.

    Empty for datasets of other names; a split whose size is not known is left out.
    """
    coco, counts = config.name == "coco", dict[str, SplitCounts]()
    if isinstance(config, ScenesConfig) or (coco and isinstance(config, KarpathyConfig) and not config.max_captions):
        return counts
    each = min(getattr(config, "max_captions", 0) or _CAPTIONS, _CAPTIONS)
    for split, images in _IMAGES.get(config.name, {}).items():
        if coco and split == "test" and getattr(config, "test_file", "") == "test":
            continue  # the first 1,000 images, or others
        captions = _XVLM_COCO_CAPTIONS[split] if coco and isinstance(config, XvlmJsonConfig) else each * images
        used = min(config.max_val_images or images, images) if split == "val" else images
        counts[split] = SplitCounts(images=used, captions=captions if used == images else used * (captions // images))
    return counts
