"""A split's images, decoded and transformed in this process or in worker processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
