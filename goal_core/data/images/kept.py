"""A split's images as evaluation sees them, decoded once where memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.config import ImageConfig
from goal_core.data.dataset import PackedReader, Split
from goal_core.data.images.decoding import DecodeRequest, ImageDecoder

RAM_LIMIT = 4 * 2**30
"""Splits whose decoded images take at most this many bytes in all are decoded once and kept (4 GiB)."""


class DecodedImages:
    """A split's images as evaluation sees them, decoded once where memory allows.

    If all of them take no more than ``ram_limit`` bytes (``num_images * 3 * size * size``), each is decoded on
    first use and then kept as uint8; otherwise each is decoded on every use. The worker processes stop once everything
    is kept. Squares of a pack are not kept: they are in the system's cache of its files, once for all processes.
    """

    def __init__(
        self,
        split: Split,
        config: ImageConfig,
        *,
        num_workers: int = 0,
        ram_limit: int = RAM_LIMIT,
        device: torch.device | None = None,
    ) -> None:
        self._decoder = ImageDecoder(split, config, num_workers=num_workers, device=device)
        shape = (split.num_images, 3, config.size, config.size)
        packed = isinstance(split.reader, PackedReader) and split.reader.holds_squares
        fits = math.prod(shape) <= ram_limit and not packed
        self._kept = torch.empty(shape, dtype=torch.uint8) if fits else None
        self._done = np.zeros(split.num_images, dtype=bool)

    def stream(self, requests: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Images in any order, batch by batch; a new stream ends the one before it.

        Args:
            requests: image indices of each batch, (B,) int64.

        Yields:
            (B, 3, size, size) uint8 for each request.

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
        everything = np.arange(len(self._done), dtype=np.int64)
        return self.stream([everything[start : start + chunk_size] for start in range(0, len(everything), chunk_size)])

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
