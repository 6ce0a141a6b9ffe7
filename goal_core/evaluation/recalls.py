"""Recalls of a split under the names they are recorded by, such as `val/i2t_r1` and `test/rsum`."""

from __future__ import annotations

import torch
from torch import Tensor

from goal_core.evaluation.embedding import TEXT_CHUNK, EvalSplit, embed_split
from goal_core.evaluation.reranking import reranked_ranks
from goal_core.evaluation.retrieval import RetrievalRanks, retrieval_metrics, retrieval_ranks
from goal_core.models import Encoder, XvlmHeads

PAIRS = 256
"""Pairs per forward pass of the cross encoder. Fixed, because a kernel may round differently at another size."""


Embedded = tuple[Tensor, Tensor]
"""Embeddings of a split's images (N, D) and captions (M, D)."""


def recalls_of(encoder: Encoder, split: EvalSplit, embedded: Embedded | None = None) -> dict[str, float]:
    """Recalls on the full ranking as ``<split>/i2t_r1`` ... ``<split>/rsum``, percent; they select the epoch.

    Args:
        encoder: the model.
        split: what to rank.
        embedded: its embeddings, where they are known already; of a model that does not re-rank.
    """
    if encoder.heads.rerank_top:
        return _named(split.name, rerank_split(encoder, split)[2].metrics())
    image_ND, text_MD = embedded or embed_split(encoder, split)
    return _named(split.name, retrieval_metrics(image_ND, text_MD, split.caption_image))


def all_recalls_of(
    encoder: Encoder, split: EvalSplit, embedded: Embedded | None = None
) -> tuple[dict[str, float], RetrievalRanks]:
    """As :func:`recalls_of`, with the additional recalls that are reported, and the ranks behind the full ranking.

    Where the split has several thousand images exactly, ``<split>_1k/...`` is the mean over folds of 1,000 images, as
    COCO results are reported. A model that re-ranks has no such folds; ``<split>_embed/...`` is the recall of its
    embeddings alone.
    """
    if encoder.heads.rerank_top:
        image_ND, text_MD, ranks = rerank_split(encoder, split)
        of_embeddings = retrieval_metrics(image_ND, text_MD, split.caption_image)
        return _named(split.name, ranks.metrics()) | _named(f"{split.name}_embed", of_embeddings), ranks
    return recalls_between(*(embedded or embed_split(encoder, split)), split.caption_image, split.name)


def recalls_between(
    image_ND: Tensor, text_MD: Tensor, caption_image: Tensor, name: str
) -> tuple[dict[str, float], RetrievalRanks]:
    """Recalls of embeddings, ``<name>/...`` and ``<name>_1k/...``, and ranks, as by :func:`all_recalls_of`.

    Args:
        image_ND: images, (N, D) float32.
        text_MD: captions, (M, D) float32.
        caption_image: index of each caption's image, (M,) int64, on any device.
        name: of the split.
    """
    ranks = retrieval_ranks(image_ND, text_MD, caption_image)
    recalls = _named(name, ranks.metrics())
    folds, rest = divmod(len(image_ND), 1000)
    if folds > 1 and rest == 0:
        recalls |= _named(f"{name}_1k", retrieval_metrics(image_ND, text_MD, caption_image, folds=folds))
    return recalls, ranks


def _named(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}/{key}": value for key, value in metrics.items()}


def rerank_split(encoder: Encoder, split: EvalSplit) -> tuple[Tensor, Tensor, RetrievalRanks]:
    """Embed a split and rank it in two stages.

    The score's inputs for every image and caption stay on the device: 3 GB each for COCO's 5,000 test images at
    384 px and their 25,000 captions.

    Args:
        encoder: a model whose heads are :class:`~goal_core.models.systems.xvlm.XvlmHeads`.
        split: the images and captions.

    Returns:
        Embeddings of the images (N, D) and captions (M, D), float32, on the device; and the ranks.
    """
    heads = encoder.heads
    assert isinstance(heads, XvlmHeads)
    encoder.train(False)
    with torch.inference_mode():
        with encoder.autocast():
            tokens_NRF = torch.cat([heads.image_tokens(encoder.features(chunk)) for chunk in split.inputs()])
            states_MLW, lengths_M = _caption_states(encoder, heads, split)
            image_ND = torch.cat([heads.embed_images(part).float() for part in torch.split(tokens_NRF, TEXT_CHUNK)])
            text_MD = torch.cat([heads.embed_texts(part).float() for part in torch.split(states_MLW, TEXT_CHUNK)])

        def score(images_P: Tensor, texts_P: Tensor) -> Tensor:
            parts = []
            for images, texts in zip(torch.split(images_P, PAIRS), torch.split(texts_P, PAIRS), strict=True):
                split.alive()
                lengths = lengths_M[texts.cpu()]
                states = states_MLW[texts, : int(lengths.max())]
                with encoder.autocast():
                    parts.append(heads.match(tokens_NRF[images], states, lengths).float())
            return torch.cat(parts)

        ranks = reranked_ranks(image_ND, text_MD, split.caption_image, score, heads.rerank_top)
    return image_ND, text_MD, ranks


def _caption_states(encoder: Encoder, heads: XvlmHeads, split: EvalSplit) -> tuple[Tensor, Tensor]:
    """States of all captions, padded with zeros, (M, L, W), on the device; and their lengths (M,), on the CPU."""
    states_MLW = torch.empty(0)
    for rows, tokens, lengths in split.caption_chunks():
        states = heads.text_states(tokens.to(encoder.device), lengths)
        if not len(states_MLW):  # the longest come first
            states_MLW = states.new_zeros(len(split.order), *states.shape[1:])
        states_MLW[torch.from_numpy(rows).to(encoder.device), : states.shape[1]] = states
    return states_MLW, torch.from_numpy(split.captions.lengths)
