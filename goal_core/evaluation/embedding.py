"""Embeddings of a whole split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.basics.errors import CollapsedError, warn
from goal_sweep.goal_core.data import ImageConfig, Split, index_parts
from goal_sweep.goal_core.data.captions import Captions, captions_of
from goal_sweep.goal_core.data.decoding import DecodedImages
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.evaluation.retrieval import NonFiniteEmbeddingError
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.objectives.lengths import describe_unsound, no_unit_vectors

TEXT_CHUNK = 256
"""Captions per forward pass outside training. Fixed, because a kernel may round differently at another size."""
CHUNK = 64
"""Images per forward pass outside training; fixed for the same reason."""
Embedded = tuple[Tensor, Tensor]
"""Joint-space embeddings of a split's images (N, D) and captions (M, D), float32, on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSplit:
    """A split prepared once for all evaluations of a stage."""

    name: str
    """`train`, `val` or `test`: the first part of its metrics' names."""
    inputs: Callable[[], Iterator[Tensor]]
    """Gives frozen features (C, F), or pixels (C, 3, S, S), chunk by chunk in the split's order."""
    captions: Captions
    caption_image: Tensor
    """Index of each caption's image, (M,) int64."""
    alive: Callable[[], None] = lambda: None
    """Called regularly during a long evaluation, so that it is not mistaken for a hang."""


def prepare_split(
    split: Split, tokenizer: Tokenizer, inputs: Callable[[], Iterator[Tensor]], alive: Callable[[], None] = lambda: None
) -> EvalSplit:
    """Encode a split's captions and pair them with its images' inputs; see :class:`EvalSplit`."""
    owners = torch.from_numpy(split.caption_image)
    captions = captions_of(split, tokenizer)
    return EvalSplit(name=split.name, inputs=inputs, captions=captions, caption_image=owners, alive=alive)


def caption_chunks(
    captions: Captions, alive: Callable[[], None] = lambda: None
) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
    """Caption numbers, their padded tokens (C, L) and their lengths (C,), chunk by chunk.

    The longest come first, so that a chunk needs little padding.
    """
    order = np.argsort(-captions.lengths, kind="stable")
    for start in range(0, len(order), TEXT_CHUNK):
        alive()
        rows = order[start : start + TEXT_CHUNK]
        yield rows, *captions.batch(rows)


def embed_split(encoder: Encoder, split: EvalSplit) -> Embedded:
    """Embed a split. The embeddings of several cells have the cells in front."""
    encoder.train(False)
    with torch.inference_mode(), encoder.autocast():
        image_ND = torch.cat([encoder.images(chunk).float() for chunk in split.inputs()], -2)
    return image_ND, embed_captions(encoder, split.captions, split.alive)


def embed_captions(encoder: Encoder, captions: Captions, alive: Callable[[], None] = lambda: None) -> Tensor:
    """Embeddings of captions in their order, (M, D) float32, on the device; as by :func:`embed_split`."""
    rows, chunks = [], []
    encoder.train(False)
    with torch.inference_mode(), encoder.autocast():
        for numbers, tokens, lengths in caption_chunks(captions, alive):
            rows.append(numbers)
            chunks.append(encoder.texts(send(tokens, encoder.device), lengths).float())
        sorted_MD = torch.cat(chunks, -2)
        text_MD = torch.empty_like(sorted_MD)
        text_MD[..., send(torch.from_numpy(np.concatenate(rows)), encoder.device), :] = sorted_MD
    return text_MD


def check_embedded(embedded: Embedded, where: str) -> Embedded:
    """The embeddings of one cell, after a check that they are unit vectors and have not collapsed.

    Raises:
        NonFiniteEmbeddingError: some are not finite, or not of unit length.
        CollapsedError: those of all images are equal. Equal captions are warned of: their words may be unknown.
    """
    if any(bool(no_unit_vectors(emb).any()) for emb in embedded):
        raise NonFiniteEmbeddingError(f"{where}: {describe_unsound(images=embedded[0], captions=embedded[1])}")
    images, captions = (len(emb) > 1 and bool((emb == emb[0]).all()) for emb in embedded)
    if images:
        raise CollapsedError(f"{where}: the embeddings of all {len(embedded[0])} images are equal")
    if captions:
        warn(f"{where}: the embeddings of all {len(embedded[1])} captions are equal: unknown words, or a collapse")
    return embedded


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
    """
    images = None if image is None else DecodedImages(split, image, num_workers=workers, device=device)

    def chunks() -> Iterator[Tensor]:
        features = (torch.from_numpy(split.load_regions(part)) for part in index_parts(split.num_images, CHUNK))
        for chunk in features if images is None else images.chunks(CHUNK):
            alive()
            yield send(chunk, device)

    return chunks
