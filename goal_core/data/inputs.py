"""The captions and images of a split as a model takes them: ids of words or vectors, and decoded pixels.

Images are decoded and transformed in this process or in worker processes, and kept where memory allows.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import tee
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from goal_sweep.goal_core.basics.errors import DataError, GoalError, listening, warn
from goal_sweep.goal_core.basics.files import kept_columns, key_of, write_columns
from goal_sweep.goal_core.data.config import ImageConfig
from goal_sweep.goal_core.data.dataset import RegionReader, Split, index_parts
from goal_sweep.goal_core.data.text import PAD, Tokenizer
from goal_sweep.goal_core.data.transforms import transform_of


def captions_of(split: Split, tokenizer: Tokenizer) -> Captions:
    """The captions of a split: ids, made once a tokenizer and kept beside the index, or their vectors."""
    if split.texts is not None:
        return CaptionVectors(split.texts, split.num_captions)
    if split.cache is None:
        return EncodedCaptions.of(split.captions, tokenizer, partial(_place, split))
    path = split.cache.with_name(f"{split.cache.name}-{key_of(tokenizer.to_json())}.tokens")
    if kept := kept_columns(path):
        return EncodedCaptions(**kept[0])
    fresh = EncodedCaptions.of(split.captions, tokenizer, partial(_place, split))
    with suppress(OSError):  # a disk that refuses it costs only time
        write_columns(path, fresh.columns(), {})
    return fresh


def _place(split: Split, caption: int) -> str:
    image = int(split.caption_image[caption])
    number = caption - int(np.searchsorted(split.caption_image, image))
    return f"split {split.name}, caption {number + 1} of {split.reader.label(image)}: "


def warn_of_reading(encoded: Iterable[Captions], tokenizer: Tokenizer, *, of_these: bool = False) -> None:
    """Warn where a tokenizer cuts captions, or hardly knows their words.

    Args:
        of_these: its words are those of such captions, so that nothing is said of unknown ones.
    """
    own = [one for one in encoded if isinstance(one, EncodedCaptions)]
    long = ((one, index) for one in own for index in np.flatnonzero(one.lengths >= tokenizer.longest).tolist())
    number, cut = sum(map(len, own)), sum(tokenizer.fills(one.ids(index)) for one, index in long)
    if cut:
        warn(f"{cut:,} of {number:,} captions fill all that the model reads of one; what follows is cut")
    strange = 0 if of_these else sum(one.num_strange(tokenizer.unknown) for one in own)
    if strange:
        warn(f"the model does not know half of the words or more in {strange:,} of {number:,} captions")


class EncodedCaptions:
    """All captions of a split, at least one, as ids, one after the other (T,), and where each caption ends (N,)."""

    def __init__(self, ids: NDArray[np.int32], ends: NDArray[np.int64]) -> None:
        self._ids, self._ends = ids, ends

    @classmethod
    def of(
        cls, captions: Sequence[str], tokenizer: Tokenizer, place: Callable[[int], str] = lambda number: ""
    ) -> EncodedCaptions:
        """Encode captions; a `DataError` of one begins with its place, by its number."""
        ids, ends = array("i"), array("q")
        for number, caption in enumerate(captions):
            try:
                ids.extend(tokenizer.encode(caption))
            except DataError as error:
                raise DataError(f"{place(number)}{error}") from error
            ends.append(len(ids))
        return cls(np.array(ids, np.int32), np.array(ends, np.int64))

    def columns(self) -> dict[str, NDArray[Any]]:
        """What it is made of, by name."""
        return {"ids": self._ids, "ends": self._ends}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids of each caption, those of its start and end included, (N,) int64."""
        return np.diff(self._ends, prepend=0)

    def num_strange(self, unknown: int | None) -> int:
        """How many captions are unknown words at least by half, apart from their first and last id."""
        found = np.concatenate(([0], np.cumsum(self._ids == unknown, dtype=np.int32)))
        lengths = self.lengths
        counts = found[self._ends - 1] - found[self._ends - lengths + 1]
        return int(((counts > 0) & (2 * counts >= lengths - 2)).sum())

    def ids(self, index: int) -> list[int]:
        """Ids of one caption."""
        ids: list[int] = self._ids[self._ends[index - 1] if index else 0 : self._ends[index]].tolist()
        return ids

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Ids (B, L) of captions, padded with 0 up to the longest of them, and their lengths (B,), at least 2."""
        starts = np.where(indices > 0, self._ends[indices - 1], 0)
        lengths = self._ends[indices] - starts
        columns = np.arange(lengths.max())
        valid_BL = columns < lengths[:, None]
        positions_BL = np.where(valid_BL, starts[:, None] + columns, 0)
        tokens_BL = np.where(valid_BL, self._ids[positions_BL], PAD).astype(np.int64)
        return torch.from_numpy(tokens_BL), torch.from_numpy(lengths)


class CaptionVectors:
    """The first captions of a split as vectors, in memory or read when they are needed."""

    def __init__(self, vectors: RegionReader | NDArray[np.float32], num_captions: int) -> None:
        self._vectors, self._num_captions = vectors, num_captions

    def __len__(self) -> int:
        return self._num_captions

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ones, (N,) int64."""
        return np.ones(len(self), np.int64)

    def batch(self, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Vectors of the captions at ``indices``, (B, G) float32, and ones, (B,) int64."""
        held = self._vectors[indices] if isinstance(self._vectors, np.ndarray) else self._vectors.rows(indices)
        return torch.from_numpy(held), torch.ones(len(indices), dtype=torch.int64)


Captions = EncodedCaptions | CaptionVectors


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
