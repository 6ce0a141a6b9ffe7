"""A split's images, decoded and transformed in this process or in worker processes, and kept where memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from goal_sweep.goal_core.basics.errors import GoalError, listening, warn
from goal_sweep.goal_core.data.config import ImageConfig
from goal_sweep.goal_core.data.dataset import Split, index_parts
from goal_sweep.goal_core.data.transforms import transform_of

RAM_LIMIT = 4 * 2**30
"""Splits whose decoded images take at most this many bytes in all are decoded once and kept (4 GiB)."""

_Request = tuple[NDArray[np.int64], Sequence[int]]
"""Indices of a batch's images, (B,), and a seed of each one's augmentation; without seeds they are as in evaluation."""


class _Decoding(Dataset[Any]):
    """The work of one process: takes a request, and returns a batch or the user's error, and its warnings."""

    def __init__(self, split: Split, config: ImageConfig) -> None:
        self._split, self._transform = split, transform_of(config)

    def __getitem__(self, request: _Request) -> tuple[Tensor | GoalError, list[str]]:
        # Errors travel back as values: raised in a worker they would arrive wrapped in its traceback.
        warnings = list[str]()
        with listening(warnings.append):
            try:
                return self.decode(request), warnings
            except GoalError as error:
                return error, warnings

    def decode(self, request: _Request) -> Tensor:
        (images, seeds), size = request, self._transform.config.size
        batch = torch.empty((len(images), 3, size, size), dtype=torch.uint8)
        rows = batch.numpy()
        for row, index in enumerate(images.tolist()):
            pixels = None if self._split.packed is None else self._split.packed(index)
            if pixels is not None and self._split.holds_squares:
                rows[row] = pixels
                continue
            if pixels is None:
                pixels = self._split.load_image(index)
            made = self._transform.for_training(pixels, seeds[row]) if seeds else self._transform.for_evaluation(pixels)
            batch[row] = made
        return batch


class _Requests(Sampler[_Request]):
    """Hands the requests of the current stream to the workers, one whenever a worker becomes free."""

    def __init__(self) -> None:
        self.current: Iterable[_Request] = ()

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.current)


class DecodedImages:
    """A split's images, decoded batch by batch.

    Those that evaluation sees are kept once they are decoded, if all of them take no more than ``ram_limit`` bytes
    (``num_images * 3 * size * size``). Squares of a pack are in the system's cache of its files, for all processes.

    Args:
        num_workers: worker processes, which stay between streams and each work two batches ahead; 0 decodes in this
            process. The pixels do not depend on it.
        ram_limit: 0 where images are augmented.
        device: where the batches will go; for a GPU they come in pinned memory.
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
        self._work = _Decoding(split, config)
        self._num_workers, self._pins = num_workers, device is not None and device.type == "cuda"
        self._requests = _Requests()
        self._loader: DataLoader[Any] | None = None
        shape = (split.num_images, 3, config.size, config.size)
        fits = math.prod(shape) <= ram_limit and not split.holds_squares
        self._kept = torch.empty(shape, dtype=torch.uint8) if fits else None
        self._done = np.zeros(split.num_images, dtype=bool)

    def stream(self, requests: Iterable[_Request]) -> Iterator[Tensor]:
        """Images in any order, batch by batch. The workers serve one stream: a new one ends the one before it.

        Gives (B, 3, size, size) uint8 for each request. No more of these are taken in advance than the workers decode.
        """
        if self._kept is None:
            yield from self._decoded(requests)
            return
        if self._done.all():
            self.close()
            yield from (self._kept[torch.from_numpy(images)] for images, _ in requests)
            return
        wanted, ahead = tee(requests)
        for (images, _), pixels in zip(wanted, self._decoded(ahead), strict=True):
            self._kept[torch.from_numpy(images)] = pixels
            self._done[images] = True
            yield pixels

    def chunks(self, chunk_size: int) -> Iterator[Tensor]:
        """All images in order, ``chunk_size`` at a time (the last may be smaller), (B, 3, size, size) uint8."""
        return self.stream((part, ()) for part in index_parts(len(self._done), chunk_size))

    def close(self) -> None:
        """Stop the worker processes, if any; kept images stay, and a later stream starts new workers."""
        self._loader = None
        self._requests.current = ()

    def _decoded(self, requests: Iterable[_Request]) -> Iterator[Tensor]:
        """Decode requests one after the other."""
        if not self._num_workers:
            yield from map(self._work.decode, requests)
            return
        self._requests.current = requests
        if self._loader is None:
            self._loader = DataLoader(
                self._work,
                sampler=self._requests,
                batch_size=None,
                num_workers=self._num_workers,
                persistent_workers=True,
                pin_memory=self._pins,
                # The loader draws a seed for its workers; from torch's global stream it would change the model's draws.
                generator=torch.Generator(),
            )
        for batch, warnings in self._loader:
            for line in warnings:
                warn(line)
            if isinstance(batch, GoalError):
                raise batch
            yield batch
            if requests is not self._requests.current:
                raise RuntimeError("this stream of images has ended, because a newer one was started")
