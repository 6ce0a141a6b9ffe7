"""A split's images as the backbone sees them in evaluation, decoded once where memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.config import ImageConfig
from goal_core.data.images.decoding import DecodeRequest, ImageDecoder
from goal_core.data.split import Split

RAM_LIMIT = 4 * 2**30
"""Splits whose squares take at most this many bytes in all are decoded once and kept (4 GiB)."""


class DecodedImages:
    """Resized and centre-cropped images of one split, without augmentation.

    When all squares together take no more than ``ram_limit`` bytes (``num_images * 3 * size * size``), each is decoded
    the first time it is asked for and kept as uint8; otherwise each is decoded whenever it is asked for.

    Args:
        split: the images.
        config: the sizes; of ``config.augment`` only how it treats images in evaluation.
        num_workers: decoding processes, 0 for none. They stop once everything is kept.
        ram_limit: bytes.
    """

    def __init__(self, split: Split, config: ImageConfig, *, num_workers: int = 0, ram_limit: int = RAM_LIMIT) -> None:
        self._decoder = ImageDecoder(split, config, num_workers=num_workers)
        shape = (split.num_images, 3, config.size, config.size)
        self._kept: Tensor | None = None
        if split.num_images * 3 * config.size**2 <= ram_limit:
            self._kept = torch.empty(shape, dtype=torch.uint8)
        self._done = np.zeros(split.num_images, dtype=bool)

    def __len__(self) -> int:
        """Number of images."""
        return len(self._done)

    @property
    def keeps(self) -> bool:
        """Whether images stay in memory once decoded."""
        return self._kept is not None

    def stream(self, requests: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Images in any order, batch by batch; a new stream ends the one before it.

        Args:
            requests: image indices of each batch, (B,) int64.

        Yields:
            (B, 3, size, size) uint8 on the CPU, for each request.

        Raises:
            DataError: an image cannot be read.
        """
        if self._kept is None:
            yield from self._decoder.stream(DecodeRequest(images=images) for images in requests)
            return
        fresh = self._first_uses(requests)
        decoded = self._decoder.stream(DecodeRequest(images=images) for images in fresh if len(images))
        for images, new in zip(requests, fresh, strict=True):
            if len(new):
                self._kept[torch.from_numpy(new)] = next(decoded)
                self._done[new] = True
                if self._done.all():
                    self._decoder.close()
            yield self._kept[torch.from_numpy(images)]

    def chunks(self, chunk_size: int) -> Iterator[Tensor]:
        """All images in order, ``chunk_size`` at a time (the last may be smaller), (B, 3, size, size) uint8."""
        everything = np.arange(len(self), dtype=np.int64)
        return self.stream([everything[start : start + chunk_size] for start in range(0, len(self), chunk_size)])

    def close(self) -> None:
        """Stop the decoding processes, if any; kept images stay."""
        self._decoder.close()

    def _first_uses(self, requests: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """The images of each request that neither an earlier request nor an earlier stream has decoded."""
        planned = self._done.copy()
        fresh = []
        for images in requests:
            new = np.unique(images[~planned[images]])
            planned[new] = True
            fresh.append(new)
        return fresh
