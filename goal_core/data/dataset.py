"""A dataset: three splits of images and captions, and a fingerprint of everything a model sees of them.

Importers give it as rows; those of plugins are registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.basics.files import key_of
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.data.config import ImageConfig

SPLIT_NAMES = ("train", "val", "test")
"""Every dataset has exactly these, in this order."""

COUNTED = ("train", "val")
"""Splits whose words are counted, as a rule."""
DECODE_VERSION = 1
"""Raise it whenever a model would see different pixels or words in the same files."""


class Row(NamedTuple):
    """An image with some of its captions."""

    image: str
    """Its file, relative to the folder of the dataset, with forward slashes; in a shard, the shard."""
    captions: Sequence[str]
    """At least one."""
    split: str = ""
    """`train`, `val` or `test`; empty where none is given."""
    span: tuple[int, int] | None = None
    """Where it begins in a shard, and its bytes."""
    key: str = ""
    """Rows of the same key are one image; empty where the file tells."""
    place: str = ""
    """Its name in a shard, for messages."""


importers: Registry[Callable[[Path], Iterator[Row]]] = Registry("importer")
"""Of plugins: functions from `data.root` to the rows of what lies there."""


class ImageReader(Protocol):
    """Reads a split's images. Readers are pickled to reach other processes."""

    def label(self, index: int) -> str:
        """The image's name in messages."""

    def read(self, index: int) -> NDArray[np.uint8]:
        """One image, (H, W, 3) uint8 RGB in its original size."""


@runtime_checkable
class RegionReader(Protocol):
    """Reads a split's precomputed features."""

    def label(self, index: int) -> str:
        """The image's name in messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each image's features: (R, F), R regions of F numbers; or (F,), one vector."""

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """The features of some images, (B, R, F) or (B, F) float32."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Images, read on demand, or their precomputed regions, and their captions, in the order of the dataset."""

    name: str
    """`train`, `val` or `test`."""
    captions: Sequence[str]
    """All captions: those of image 0, then those of image 1, and so on; images may have different numbers of them."""
    caption_image: NDArray[np.int64]
    """Index of each caption's image in this split, (num_captions,), ascending; every image occurs."""
    reader: ImageReader | RegionReader
    texts: RegionReader | NDArray[np.float32] | None = None
    """The vectors of the captions, (G,) each, or all of them, (N, G); None where these are words."""
    cache: Path | None = None
    """Where the ids of the captions may be kept: the beginning of files' names, which changes with the captions."""
    packed: Callable[[int], NDArray[np.uint8] | None] | None = None
    """Gives an image from a pack, (3, S, S) or (H, W, 3) uint8; None where the pack is of no use any more."""
    holds_squares: bool = False
    """Whether the pack has the squares of pixels that evaluation sees; otherwise whole images after ``shrink``."""

    def __post_init__(self) -> None:
        if not len(self.caption_image):
            raise DataError(f"split {self.name!r} has no images")

    @property
    def num_images(self) -> int:
        """Number of images."""
        return int(self.caption_image[-1]) + 1

    @property
    def num_captions(self) -> int:
        """Number of captions, and so of image-caption pairs."""
        return len(self.captions)

    def load_image(self, index: int) -> NDArray[np.uint8]:
        """One image, (H, W, 3) uint8 RGB in its original size; a `DataError` names a file that cannot be read."""
        assert not isinstance(self.reader, RegionReader), "a split of precomputed regions"
        return self.reader.read(index)

    @property
    def region_shape(self) -> tuple[int, ...] | None:
        """The shape of each image's precomputed features: (R, F) regions or (F,), one vector; None for images."""
        return self.reader.shape if isinstance(self.reader, RegionReader) else None

    def load_regions(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Precomputed features of some images, (B, R, F) or (B, F) float32, in the order of their indices (B,) int64.

        A `DataError` names an image of which one is not finite.
        """
        assert isinstance(self.reader, RegionReader), "a split of images"
        return self.reader.rows(indices)

    def first(self, num_images: int) -> Split:
        """The first ``num_images`` images (at least 1) with their captions, as a split; all if there are fewer."""
        if num_images >= self.num_images:
            return self
        kept = int(np.searchsorted(self.caption_image, num_images))
        return replace(self, captions=self.captions[:kept], caption_image=self.caption_image[:kept], cache=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """The splits that a cell trains, selects and reports on."""

    name: str
    """As in the sweep file. It is shown in tables and is not part of the fingerprint."""
    splits: Mapping[str, Split]
    """`train`, `val` and `test`, none of them empty."""
    fingerprint: str
    """16 hexadecimal digits that change with anything a model sees of the data: which images and captions, their
    splits and order, decoding, resizing, augmentation and the word threshold. Paths are not part of it."""
    corpus: Sequence[Sequence[str]]
    """Captions from which the vocabulary is built, in parts: as a rule those of train and those of val."""
    notes: Sequence[str] = ()
    """What a user should know of what is not used, or is there twice: a line each."""
    word_notes: Sequence[str] = ()
    """The same of words, which a model with a tokenizer from elsewhere does not count."""

    @property
    def vocabulary_captions(self) -> Iterable[str]:
        """Captions from which the vocabulary is built, to be gone through once."""
        return chain.from_iterable(self.corpus)


def index_parts(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    """The numbers from 0 to ``count`` - 1 in order, so many at a time; the last part may be smaller."""
    return (np.arange(start, min(start + size, count)) for start in range(0, count, size))


def num_batches(num_captions: int, batch_size: int, drop_last: bool) -> int:
    """Steps of an epoch; see :func:`goal_core.data.batches.batch_indices`."""
    full, rest = divmod(num_captions, batch_size)
    return full + int(rest > 1 and not drop_last)


def fingerprint_of(image: ImageConfig | None, min_word_count: int, data: object) -> str:
    """Hash what a model sees of a dataset, of whose images and captions ``data`` is a JSON-able description."""
    return key_of([DECODE_VERSION, image and asdict(image), min_word_count, data])
