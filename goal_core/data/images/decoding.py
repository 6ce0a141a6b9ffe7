"""A split's images, decoded and transformed in this process or in worker processes, and kept where memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from goal_core.basics.errors import ConfigError, GoalError
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import PackedReader, Split
from goal_core.data.images.transforms import transform_of

RAM_LIMIT = 4 * 2**30
"""Splits whose decoded images take at most this many bytes in all are decoded once and kept (4 GiB)."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeRequest:
    """One batch of images."""

    images: NDArray[np.int64]
    """Indices of images of the split, (B,) int64."""
    seeds: tuple[int, ...] = ()
    """One augmentation seed per image; without seeds, the images are transformed as in evaluation."""


class _Decoding(Dataset[Any]):
    """The work of one process: takes a request, and returns a batch or the user's error."""

    def __init__(self, split: Split, config: ImageConfig) -> None:
        self._split, self._transform = split, transform_of(config)
        self._packed = split.reader if isinstance(split.reader, PackedReader) else None
        self._squares = self._packed if self._packed is not None and self._packed.holds_squares else None

    def __getitem__(self, request: DecodeRequest) -> Tensor | GoalError:
        # Errors travel back as values: raised in a worker they would arrive wrapped in its traceback.
        try:
            return self.decode(request)
        except GoalError as error:
            return error

    def decode(self, request: DecodeRequest) -> Tensor:
        size = self._transform.size
        batch = torch.empty((len(request.images), 3, size, size), dtype=torch.uint8)
        rows = batch.numpy()
        for row, index in enumerate(request.images.tolist()):
            if request.seeds:
                batch[row] = self._transform.for_training(self._prepared(index), request.seeds[row])
            elif self._squares is not None:
                self._squares.square(index, rows[row])
            else:
                batch[row] = self._transform.for_evaluation(self._prepared(index))
        return batch

    def _prepared(self, index: int) -> NDArray[np.uint8]:
        packed = self._packed
        if packed is not None and not packed.holds_squares:
            return packed.prepared(index)
        return self._transform.prepared(self._split.load_image(index))


class _Requests(Sampler[DecodeRequest]):
    """Hands the requests of the current stream to the workers, one whenever a worker becomes free."""

    def __init__(self) -> None:
        self.current: Iterable[DecodeRequest] = ()

    def __iter__(self) -> Iterator[DecodeRequest]:
        return iter(self.current)


class ImageDecoder:
    """Decodes batches of a split's images.

    Args:
        split: the images.
        config: their sizes and augmentation.
        num_workers: worker processes, which stay between streams and each work two batches ahead; 0 decodes in this
            process. The pixels do not depend on it.
        device: where the batches will go. Those for a GPU come in pinned memory, which a thread beside the training
            copies them to.
    """

    def __init__(
        self, split: Split, config: ImageConfig, *, num_workers: int = 0, device: torch.device | None = None
    ) -> None:
        if num_workers < 0:
            raise ConfigError(f"num_workers must be 0 (decode in this process) or more, got {num_workers}")
        self._work = _Decoding(split, config)
        self._num_workers, self._pins = num_workers, device is not None and device.type == "cuda"
        self._requests = _Requests()
        self._loader: DataLoader[Any] | None = None
        self._streams = count(1)
        self._latest = 0

    def stream(self, requests: Iterable[DecodeRequest]) -> Iterator[Tensor]:
        """Decode requests one after the other.

        The workers serve one stream at a time: starting a new one ends the one before it.

        Yields:
            (B, 3, size, size) uint8 for each request, in order.

        Raises:
            DataError: an image cannot be read.
            RuntimeError: a newer stream has been started.
        """
        if not self._num_workers:
            yield from map(self._work.decode, requests)
            return
        self._latest = turn = next(self._streams)
        self._requests.current = requests
        for batch in self._started_loader():
            if isinstance(batch, GoalError):
                raise batch
            yield batch
            if turn != self._latest:
                raise RuntimeError("this stream of images has ended, because a newer one was started")

    def close(self) -> None:
        """Stop the worker processes; a later stream starts new ones."""
        self._loader = None
        self._latest = next(self._streams)

    def _started_loader(self) -> DataLoader[Any]:
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
        return self._loader


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
            yield from self._decoder.stream(map(DecodeRequest, requests))
            return
        fresh = self._first_uses(requests)
        decoded = self._decoder.stream(DecodeRequest(images) for images in fresh if len(images))
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
