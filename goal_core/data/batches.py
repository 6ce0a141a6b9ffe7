"""Training batches from any step of any epoch; seed and epoch alone determine the order of the captions."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import tee
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.data.config import ImageConfig
from goal_sweep.goal_core.data.dataset import Split, num_batches
from goal_sweep.goal_core.data.inputs import RAM_LIMIT, DecodedImages, EncodedCaptions, captions_of
from goal_sweep.goal_core.data.text import Tokenizer


def epoch_order(num_captions: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which an epoch goes through the N training captions: a permutation of 0..N-1, int64.

    It has a random stream of its own, so no other draw, worker or earlier epoch changes it. It sorts raw 64-bit draws,
    which numpy keeps the same from version to version (its ``permutation`` may change).
    """
    return np.argsort(np.random.PCG64(derive_seed(seed, "order", epoch)).random_raw(num_captions), kind="stable")


def batch_indices(order: NDArray[np.int64], batch_size: int, drop_last: bool) -> Iterator[NDArray[np.int64]]:
    """Cut an epoch's order into batches of at least 2 pairs.

    ``drop_last`` leaves out the last batch if it is smaller. A last batch of one pair is always left out, because it
    has no negative pair.
    """
    for first in range(0, num_batches(len(order), batch_size, drop_last) * batch_size, batch_size):
        yield order[first : first + batch_size]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B image-caption pairs, all tensors on the CPU."""

    images: Tensor | None
    """(B, 3, size, size) uint8; None when the source gives captions only."""
    image_index: Tensor
    """The image of each pair, as its index in the split, (B,) int64; pairs of one image are no negative pairs."""
    regions: Tensor | None
    """Precomputed regions or vector of each image, (B, R, F) or (B, F) float32; None for images."""
    region_lengths: Tensor | None
    """How many of the R rows are regions, the rest being zeros, (B,) int64; None where all are."""
    tokens: Tensor
    """Ids of the captions, (B, L) int64, padded with 0 up to the longest; or their vectors, (B, G) float32."""
    lengths: Tensor
    """Number of ids of each caption, (B,) int64, at least 2; of vectors 1."""

    def __len__(self) -> int:
        return len(self.image_index)


class Augment(Protocol):
    """Changes image-caption pairs in training, as seed, epoch and caption alone decide."""

    def captions(
        self, epoch: int, captions: NDArray[np.int64], ids_of: Callable[[int], list[int]]
    ) -> tuple[Tensor, Tensor]:
        """Ids of some captions (B, L) int64, padded with 0, and their lengths (B,) int64."""

    def regions(self, epoch: int, captions: NDArray[np.int64], regions: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
        """What is left of the regions (B, R, F) of some captions' images, and how many each has, (B,) int64."""


class BatchSource:
    """The training batches of one seed. The creator must close it.

    A batch depends only on the split, the tokenizer, the seed, the epoch and the step, and neither uses nor changes the
    global random streams of torch and numpy.

    Args:
        image: None where the split has precomputed regions.
        with_images: whether batches carry images, which is not needed where their features are available.
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
        augment: Augment | None = None,
        device: torch.device | None = None,
    ) -> None:
        if batch_size > split.num_captions:
            most = f"the {split.num_captions} {split.name} captions"
            raise ConfigError(f"batch_size must not exceed {most}, got {batch_size}")
        self._split, self._captions = split, captions_of(split, tokenizer)
        self._batch_size, self._seed, self._drop_last = batch_size, seed, drop_last
        self._augment, self._with_regions = augment, image is None
        self._augments, self._images = image is not None and image.augments, None
        if with_images and image is not None:
            kept = 0 if image.augments else RAM_LIMIT
            self._images = DecodedImages(split, image, num_workers=num_workers, ram_limit=kept, device=device)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in each epoch."""
        return num_batches(self._split.num_captions, self._batch_size, self._drop_last)

    def batches(self, epoch: int, start_step: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch, counted from 1, from a step on, counted from 0; those before it cost nothing."""
        order = epoch_order(self._split.num_captions, self._seed, epoch)[start_step * self._batch_size :]
        parts, ahead = tee(batch_indices(order, self._batch_size, self._drop_last))  # processes decode some in advance
        for captions, images in zip(parts, self._pixels(ahead, epoch), strict=True):
            tokens_BL, lengths_B = self._texts(captions, epoch)
            regions, region_lengths = self._regions(captions, epoch)
            yield Batch(
                images=images,
                regions=regions,
                region_lengths=region_lengths,
                image_index=torch.from_numpy(self._split.caption_image[captions]),
                tokens=tokens_BL,
                lengths=lengths_B,
            )

    def close(self) -> None:
        """Stop the decoding processes, if any; a later epoch starts new ones."""
        if self._images is not None:
            self._images.close()

    def _texts(self, captions: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        if self._augment is not None and isinstance(self._captions, EncodedCaptions):
            return self._augment.captions(epoch, captions, self._captions.ids)
        return self._captions.batch(captions)

    def _regions(self, captions: NDArray[np.int64], epoch: int) -> tuple[Tensor | None, Tensor | None]:
        if not self._with_regions:
            return None, None
        regions = self._split.load_regions(self._split.caption_image[captions])
        if self._augment is None:
            return torch.from_numpy(regions), None
        return self._augment.regions(epoch, captions, regions)

    def _pixels(self, parts: Iterator[NDArray[np.int64]], epoch: int) -> Iterator[Tensor | None]:
        if self._images is None:
            return (None for _ in parts)

        def seeds(captions: NDArray[np.int64]) -> list[int]:
            pairs = captions.tolist() if self._augments else []
            return [derive_seed(self._seed, "augment", epoch, caption) for caption in pairs]

        return self._images.stream((self._split.caption_image[captions], seeds(captions)) for captions in parts)
