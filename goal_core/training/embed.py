"""Embeddings of a whole split, and the recalls that come from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data import EncodedCaptions, Split
from goal_core.data.tokenizer import Tokenizer
from goal_core.evaluation import RetrievalMetrics, retrieval_metrics
from goal_core.training.encoder import Encoder
from goal_core.training.rerank import rerank_split

TEXT_CHUNK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSplit:
    """A split made ready once for the whole stage."""

    inputs: Callable[[], Iterator[Tensor]]
    """Gives frozen features (C, F), or pixels (C, 3, S, S), chunk by chunk in the split's order."""
    captions: EncodedCaptions
    order: NDArray[np.int64]
    """Caption numbers by falling length, so that a chunk pads little, (M,)."""
    caption_image: Tensor
    """Index of each caption's image, (M,) int64."""
    alive: Callable[[], None] = lambda: None
    """Called again and again in a long evaluation, so that it is not taken for a hang."""


def prepare_split(
    split: Split,
    tokenizer: Tokenizer,
    inputs: Callable[[], Iterator[Tensor]],
    alive: Callable[[], None] = lambda: None,
) -> EvalSplit:
    """Encode a split's captions and put them beside its images' inputs; see :class:`EvalSplit`."""
    captions = EncodedCaptions(split.captions, tokenizer)
    return EvalSplit(
        inputs=inputs,
        captions=captions,
        order=np.argsort(-captions.lengths, kind="stable"),
        caption_image=torch.from_numpy(split.caption_image),
        alive=alive,
    )


def embed_split(encoder: Encoder, split: EvalSplit) -> tuple[Tensor, Tensor]:
    """Joint-space embeddings of a split's images (N, D) and captions (M, D), float32, on the device."""
    encoder.train(False)
    with torch.inference_mode(), encoder.autocast():
        images = [encoder.images(chunk).float() for chunk in split.inputs()]
        texts = []
        for start in range(0, len(split.order), TEXT_CHUNK):
            tokens, lengths = split.captions.batch(split.order[start : start + TEXT_CHUNK])
            texts.append(encoder.texts(tokens.to(encoder.device), lengths).float())
    image_ND, sorted_MD = torch.cat(images), torch.cat(texts)
    text_MD = torch.empty_like(sorted_MD)
    text_MD[torch.from_numpy(split.order).to(encoder.device)] = sorted_MD
    return image_ND, text_MD


def recalls_of(encoder: Encoder, split: EvalSplit, name: str) -> dict[str, float]:
    """Recalls on the full ranking as ``<name>/i2t_r1`` ... ``<name>/rsum``, percent.

    Beside them, where the split has several thousand images exactly, ``<name>_1k/...``: the mean over folds of 1,000
    images, as COCO results are reported. A model that re-ranks has no such folds; what its embeddings reach alone is
    `<name>_embed/...`.
    """
    if encoder.heads.rerank_top:
        image_ND, text_MD, ranks = rerank_split(encoder, split, TEXT_CHUNK)
        alone = retrieval_metrics(image_ND, text_MD, split.caption_image.to(encoder.device))
        return _named(name, ranks.metrics()) | _named(f"{name}_embed", alone)
    image_ND, text_MD = embed_split(encoder, split)
    return recalls_between(image_ND, text_MD, split.caption_image.to(encoder.device), name)


def recalls_between(image_ND: Tensor, text_MD: Tensor, caption_image: Tensor, name: str) -> dict[str, float]:
    """Recalls of embeddings, named as by :func:`recalls_of`.

    Args:
        image_ND: images, (N, D) float32.
        text_MD: captions, (M, D) float32.
        caption_image: index of each caption's image, (M,) int64.
        name: of the split.
    """
    recalls = _named(name, retrieval_metrics(image_ND, text_MD, caption_image))
    folds, rest = divmod(len(image_ND), 1000)
    if folds > 1 and rest == 0:
        recalls |= _named(f"{name}_1k", retrieval_metrics(image_ND, text_MD, caption_image, folds=folds))
    return recalls


def _named(prefix: str, metrics: RetrievalMetrics) -> dict[str, float]:
    return {f"{prefix}/{key}": value for key, value in metrics.as_dict().items()}
