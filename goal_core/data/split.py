"""One split of a dataset: captions in memory, images read when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from goal_core.errors import DataError

SPLIT_NAMES = ("train", "val", "test")
"""Every dataset has exactly these, in this order."""


class ImageReader(Protocol):
    """Where a split's images come from. Readers are pickled to reach decoding processes."""

    def __len__(self) -> int:
        """Number of images."""

    def read(self, index: int) -> NDArray[np.uint8]:
        """The image at ``index``, (H, W, 3) uint8 RGB in its original size."""

    def label(self, index: int) -> str:
        """What to call the image in a message."""


@runtime_checkable
class RegionReader(Protocol):
    """Where a split's precomputed features come from. Readers are pickled to reach other processes."""

    @property
    def shape(self) -> tuple[int, int]:
        """Regions of each image and numbers of each region, (R, F)."""

    def __len__(self) -> int:
        """Number of images."""

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """The regions of some images, (B, R, F) float32."""

    def label(self, index: int) -> str:
        """What to call the image in a message."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Images (or their precomputed regions) and their captions, in the order of the dataset.

    Raises:
        DataError: there is no image, or an image has no caption.
    """

    name: str
    """`train`, `val` or `test`."""
    captions: list[str]
    """All captions, flat: those of image 0, then those of image 1, and so on; images may have different numbers."""
    caption_image: NDArray[np.int64]
    """Index of each caption's image in this split, (num_captions,), ascending; every image occurs."""
    reader: ImageReader | RegionReader

    def __post_init__(self) -> None:
        """Check that captions and images fit each other."""
        if not len(self.reader):
            raise DataError(f"split {self.name!r} has no images")
        if len(self.captions) != len(self.caption_image):
            raise ValueError(f"{len(self.captions)} captions, but {len(self.caption_image)} image indices")
        counts = np.bincount(self.caption_image, minlength=len(self.reader))
        if len(counts) != len(self.reader) or (np.diff(self.caption_image) < 0).any():
            raise ValueError(f"caption_image of split {self.name!r} must ascend within [0, {len(self.reader)})")
        if not counts.all():
            bare = int(np.argmin(counts != 0))
            raise DataError(f"image {self.reader.label(bare)} of split {self.name!r} has no captions")

    @property
    def num_images(self) -> int:
        """How many images the split has."""
        return len(self.reader)

    @property
    def num_captions(self) -> int:
        """How many captions, and so image-caption pairs, the split has."""
        return len(self.captions)

    def load_image(self, index: int) -> NDArray[np.uint8]:
        """Read one image.

        Args:
            index: in [0, num_images).

        Returns:
            (H, W, 3) uint8 RGB in the original size; see :func:`goal_core.data.images.transforms.decode_image`.

        Raises:
            DataError: the file cannot be read; the message names it. Or the split holds regions and no images.
        """
        if isinstance(self.reader, RegionReader):
            raise DataError(f"split {self.name!r} holds precomputed regions and no images")
        return self.reader.read(index)

    @property
    def region_shape(self) -> tuple[int, int] | None:
        """Regions of each image and numbers of each region, (R, F); None where the split holds raw images."""
        return self.reader.shape if isinstance(self.reader, RegionReader) else None

    def load_regions(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the precomputed regions of some images.

        Args:
            indices: which images, (B,) int64, in any order.

        Returns:
            (B, R, F) float32, rows in the order of ``indices``.

        Raises:
            DataError: a region is not finite; the message names the image. Or the split holds raw images.
        """
        if not isinstance(self.reader, RegionReader):
            raise DataError(f"split {self.name!r} holds images and no precomputed regions")
        return self.reader.rows(indices)

    def first(self, num_images: int) -> Split:
        """The first images with their captions: a small split of the same kind.

        Args:
            num_images: how many, at least 1; all, if the split has no more.
        """
        if num_images >= self.num_images:
            return self
        kept = int(np.searchsorted(self.caption_image, num_images))
        reader = self.reader
        return Split(
            name=self.name,
            captions=self.captions[:kept],
            caption_image=self.caption_image[:kept],
            reader=_FirstRegions(reader, num_images)
            if isinstance(reader, RegionReader)
            else _FirstImages(reader, num_images),
        )


@dataclass(frozen=True, slots=True)
class _FirstImages:
    whole: ImageReader
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> NDArray[np.uint8]:
        return self.whole.read(index)

    def label(self, index: int) -> str:
        return self.whole.label(index)


@dataclass(frozen=True, slots=True)
class _FirstRegions:
    whole: RegionReader
    count: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.whole.shape

    def __len__(self) -> int:
        return self.count

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.whole.rows(indices)

    def label(self, index: int) -> str:
        return self.whole.label(index)


def split_of(name: str, captions_by_image: Sequence[Sequence[str]], reader: ImageReader | RegionReader) -> Split:
    """Build a split from the captions of each image.

    Args:
        name: `train`, `val` or `test`.
        captions_by_image: for each image of ``reader``, in its order, its captions.
        reader: the images, or their regions.
    """
    counts = [len(captions) for captions in captions_by_image]
    return Split(
        name=name,
        captions=[caption for captions in captions_by_image for caption in captions],
        caption_image=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        reader=reader,
    )
