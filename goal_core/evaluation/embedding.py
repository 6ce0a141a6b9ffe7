"""Embeddings of a whole split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.basics.devices import send
from goal_core.data import Captions, DecodedImages, ImageConfig, Split, captions_of
from goal_core.data.text import Tokenizer
from goal_core.models import Encoder

TEXT_CHUNK = 256
"""Captions per forward pass outside training. Fixed, because a kernel may round differently at another size."""
CHUNK = 64
"""Images per forward pass outside training; fixed for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSplit:
    """A split prepared once for all evaluations of a stage."""

    name: str
    """`train`, `val` or `test`: the first part of its metrics' names."""
    inputs: Callable[[], Iterator[Tensor]]
    """Gives frozen features (C, F), or pixels (C, 3, S, S), chunk by chunk in the split's order."""
    captions: Captions
    order: NDArray[np.int64]
    """Caption numbers in descending order of length, so that a chunk needs little padding, (M,)."""
    caption_image: Tensor
    """Index of each caption's image, (M,) int64."""
    alive: Callable[[], None] = lambda: None
    """Called regularly during a long evaluation, so that it is not mistaken for a hang."""

    def caption_chunks(self) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Caption numbers, their padded tokens (C, L) and their lengths (C,), chunk by chunk, the longest first."""
        for start in range(0, len(self.order), TEXT_CHUNK):
            self.alive()
            rows = self.order[start : start + TEXT_CHUNK]
            yield rows, *self.captions.batch(rows)


def prepare_split(
    split: Split,
    tokenizer: Tokenizer,
    inputs: Callable[[], Iterator[Tensor]],
    alive: Callable[[], None] = lambda: None,
) -> EvalSplit:
    """Encode a split's captions and pair them with its images' inputs; see :class:`EvalSplit`."""
    captions = captions_of(split, tokenizer)
    return EvalSplit(
        name=split.name,
        inputs=inputs,
        captions=captions,
        order=np.argsort(-captions.lengths, kind="stable"),
        caption_image=torch.tensor(split.caption_image),  # a copy: the file is mapped to be read only
        alive=alive,
    )


def embed_split(encoder: Encoder, split: EvalSplit) -> tuple[Tensor, Tensor]:
    """Joint-space embeddings of a split's images (N, D) and captions (M, D), float32, on the device.

    Those of several cells have the cells in front.
    """
    encoder.train(False)
    with torch.inference_mode(), encoder.autocast():
        image_ND = torch.cat([encoder.images(chunk).float() for chunk in split.inputs()], -2)
        chunks = [
            encoder.texts(send(tokens, encoder.device), lengths).float()
            for _, tokens, lengths in split.caption_chunks()
        ]
    sorted_MD = torch.cat(chunks, -2)
    text_MD = torch.empty_like(sorted_MD)
    text_MD[..., send(torch.from_numpy(split.order), encoder.device), :] = sorted_MD
    return image_ND, text_MD


def split_inputs(
    split: Split,
    image: ImageConfig | None,
    device: torch.device,
    *,
    workers: int = 0,
    alive: Callable[[], None] = lambda: None,
) -> Callable[[], Iterator[Tensor]]:
    """A function that gives a split, unaugmented, chunk by chunk on the device.

    A chunk is pixels, (C, 3, S, S) uint8, or precomputed features, (C, R, F) or (C, F) float32.

    Args:
        split: the images.
        image: their size; None where the split consists of features.
        device: where the chunks go.
        workers: decoding processes.
        alive: called for every chunk.
    """
    if image is None:
        return lambda: _region_chunks(split, device, alive)
    images = DecodedImages(split, image, num_workers=workers, device=device)

    def chunks() -> Iterator[Tensor]:
        for chunk in images.chunks(CHUNK):
            alive()
            yield send(chunk, device)

    return chunks


def _region_chunks(split: Split, device: torch.device, alive: Callable[[], None]) -> Iterator[Tensor]:
    everything = np.arange(split.num_images)
    for start in range(0, len(everything), CHUNK):
        alive()
        yield send(torch.from_numpy(split.load_regions(everything[start : start + CHUNK])), device)
