"""Training batches that can be started at any step of any epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.config import ImageConfig
from goal_core.data.images.decoded_images import RAM_LIMIT, DecodedImages
from goal_core.data.images.decoding import DecodeRequest, ImageDecoder
from goal_core.data.images.transforms import transform_of
from goal_core.data.order import batch_indices, epoch_order, num_batches, sample_seed
from goal_core.data.split import Split
from goal_core.data.text.captions import EncodedCaptions
from goal_core.data.text.pair_augment import PairAugment
from goal_core.data.text.tokenizer import Tokenizer
from goal_core.errors import ConfigError

__all__ = ["Batch", "BatchSource", "batch_indices", "epoch_order", "num_batches", "sample_seed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B image-caption pairs, all tensors on the CPU."""

    images: Tensor | None
    """(B, 3, size, size) uint8; None when the source was asked for captions only."""
    image_index: Tensor
    """Which image of the split each pair shows, (B,) int64."""
    caption_index: Tensor
    """Which caption of the split each pair reads, (B,) int64; no caption occurs twice in an epoch."""
    regions: Tensor | None
    """Precomputed regions of each image, (B, R, F) float32; None where the split holds images."""
    region_lengths: Tensor | None
    """How many of the R rows are regions, the rest being zeros, (B,) int64; None with ``regions``: all."""
    tokens: Tensor
    """Word ids, (B, L) int64, padded with 0 up to the longest caption of the batch."""
    lengths: Tensor
    """Words of each caption, (B,) int64, at least 2."""

    @property
    def ids(self) -> Tensor:
        """Equal for pairs of the same image, which are no negatives of each other, (B,) int64."""
        return self.image_index

    def __len__(self) -> int:
        """The number of pairs B."""
        return len(self.image_index)


class BatchSource:
    """The training batches of one seed.

    A batch depends on the split, the vocabulary, the seed, the epoch and the step, and on nothing that was drawn
    before: not on the number of workers, on earlier batches, or on torch's and numpy's global streams, which stay
    as they are.

    Args:
        split: the training pairs.
        tokenizer: gives the word ids.
        image: how images become squares; None where the split holds precomputed regions. With
            ``augment: none`` they are decoded once and kept in memory
            when they fit (see :class:`DecodedImages`); with ``crop_flip`` they are decoded for every use.
        batch_size: pairs a step, at least 2.
        seed: the cells' seed, at least 0.
        drop_last: leave out the last, smaller batch of an epoch (a single pair is always left out).
        num_workers: decoding processes; 0 decodes in this one.
        with_images: whether batches carry images (not needed where features are at hand).
        ram_limit: bytes of decoded images to keep.
        augment: drops regions and words; None leaves them.

    Raises:
        ConfigError: the batch is larger than the split, or a number is out of range.
    """

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        image: ImageConfig | None,
        *,
        batch_size: int,
        seed: int,
        drop_last: bool = False,
        num_workers: int = 0,
        with_images: bool = True,
        ram_limit: int = RAM_LIMIT,
        augment: PairAugment | None = None,
    ) -> None:
        if batch_size < 2:
            raise ConfigError(f"batch_size must be at least 2, or no pair has a negative; got {batch_size}")
        if batch_size > split.num_captions:
            raise ConfigError(
                f"batch_size must not exceed the {split.num_captions} {split.name} captions, got {batch_size}"
            )
        self._split, self._captions = split, EncodedCaptions(split.captions, tokenizer)
        self._batch_size, self._seed, self._drop_last = batch_size, seed, drop_last
        self._squares: DecodedImages | None = None
        self._decoder: ImageDecoder | None = None
        self._augment, self._with_regions = augment, image is None
        if with_images and image is not None and transform_of(image).augments:
            self._decoder = ImageDecoder(split, image, num_workers=num_workers)
        elif with_images and image is not None:
            self._squares = DecodedImages(split, image, num_workers=num_workers, ram_limit=ram_limit)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in each epoch."""
        return num_batches(self._split.num_captions, self._batch_size, self._drop_last)

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, one epoch at a time.

        Args:
            epoch: number of the epoch, counted from 1 by the trainer.
            start_step: begin with this batch, in [0, steps_per_epoch]; those before it cost nothing.

        Yields:
            ``steps_per_epoch - start_step`` batches.

        Raises:
            DataError: an image cannot be read.
        """
        if not 0 <= start_step <= self.steps_per_epoch:
            raise ConfigError(f"start_step must be in [0, {self.steps_per_epoch}], got {start_step}")
        order = epoch_order(self._split.num_captions, self._seed, epoch)
        parts = batch_indices(order, self._batch_size, self._drop_last)[start_step:]
        for captions, images in zip(parts, self._images(parts, epoch), strict=True):
            tokens_BL, lengths_B = self._texts(captions, epoch)
            regions, region_lengths = self._regions(captions, epoch)
            yield Batch(
                images=images,
                regions=regions,
                region_lengths=region_lengths,
                image_index=torch.from_numpy(self._split.caption_image[captions]),
                caption_index=torch.from_numpy(captions),
                tokens=tokens_BL,
                lengths=lengths_B,
            )

    def close(self) -> None:
        """Stop the decoding processes, if any; a later epoch starts new ones."""
        for images in (self._squares, self._decoder):
            if images is not None:
                images.close()

    def _texts(self, captions: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        if self._augment is None:
            return self._captions.batch(captions)
        return self._augment.captions(epoch, captions, self._split.captions)

    def _regions(self, captions: NDArray[np.int64], epoch: int) -> tuple[Tensor | None, Tensor | None]:
        if not self._with_regions:
            return None, None
        regions_BRF = self._split.load_regions(self._split.caption_image[captions])
        if self._augment is None:
            return torch.from_numpy(regions_BRF), None
        return self._augment.regions(epoch, captions, regions_BRF)

    def _images(self, parts: list[NDArray[np.int64]], epoch: int) -> Iterator[Tensor | None]:
        image_of = self._split.caption_image
        if self._squares is not None:
            yield from self._squares.stream([image_of[captions] for captions in parts])
        elif self._decoder is not None:
            yield from self._decoder.stream(
                DecodeRequest(
                    images=image_of[captions],
                    seeds=tuple(sample_seed(self._seed, epoch, caption) for caption in captions.tolist()),
                )
                for captions in parts
            )
        else:
            yield from (None for _ in parts)
