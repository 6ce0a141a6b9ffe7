"""Recalls of a split: by embeddings alone, or with the nearest re-ranked by image and caption together."""

from __future__ import annotations

import torch
from torch import Tensor

from goal_core.evaluation.embedding import TEXT_CHUNK, EvalSplit, embed_split
from goal_core.evaluation.reranking import reranked_ranks
from goal_core.evaluation.retrieval import RetrievalMetrics, RetrievalRanks, retrieval_metrics
from goal_core.models import RerankingHeads
from goal_core.models.encoder import Encoder

PAIRS = 256
"""Pairs a forward pass of the cross encoder. Fixed, because a kernel may round differently at another size."""


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


def rerank_split(encoder: Encoder, split: EvalSplit, text_chunk: int) -> tuple[Tensor, Tensor, RetrievalRanks]:
    """Embed a split and rank it in two stages.

    What the score needs of every image and caption stays on the device: 3 GB each for COCO's 5,000 test images at
    384 px and their 25,000 captions.

    Args:
        encoder: a model whose heads are :class:`~goal_core.models.heads.RerankingHeads`.
        split: the images and captions.
        text_chunk: captions a forward pass.

    Returns:
        Embeddings of the images (N, D) and captions (M, D), float32, on the device; and the ranks.
    """
    heads = encoder.heads
    assert isinstance(heads, RerankingHeads)
    encoder.train(False)
    with torch.inference_mode():
        with encoder.autocast():
            tokens_NRF = torch.cat([heads.image_tokens(encoder.features(chunk)) for chunk in split.inputs()])
            states_MLW, lengths_M = _caption_states(encoder, heads, split, text_chunk)
            image_ND = torch.cat([heads.embed_images(part).float() for part in torch.split(tokens_NRF, text_chunk)])
            text_MD = torch.cat([heads.embed_texts(part).float() for part in torch.split(states_MLW, text_chunk)])

        def score(images_P: Tensor, texts_P: Tensor) -> Tensor:
            parts = []
            for images, texts in zip(torch.split(images_P, PAIRS), torch.split(texts_P, PAIRS), strict=True):
                split.alive()
                lengths = lengths_M[texts.cpu()]
                states = states_MLW[texts, : int(lengths.max())]
                with encoder.autocast():
                    parts.append(heads.match(tokens_NRF[images], states, lengths).float())
            return torch.cat(parts)

        owners = split.caption_image.to(encoder.device)
        ranks = reranked_ranks(image_ND, text_MD, owners, score, heads.rerank_top)
    return image_ND, text_MD, ranks


def _caption_states(
    encoder: Encoder, heads: RerankingHeads, split: EvalSplit, text_chunk: int
) -> tuple[Tensor, Tensor]:
    """States of all captions, padded with zeros, (M, L, W), on the device; and their lengths (M,), on the CPU."""
    everything, lengths_M = None, torch.from_numpy(split.captions.lengths)
    for start in range(0, len(split.order), text_chunk):
        rows = split.order[start : start + text_chunk]
        tokens, lengths = split.captions.batch(rows)
        states = heads.text_states(tokens.to(encoder.device), lengths)
        if everything is None:  # the longest come first
            everything = states.new_zeros(len(split.order), *states.shape[1:])
        everything[torch.from_numpy(rows).to(encoder.device), : states.shape[1]] = states
    assert everything is not None
    return everything, lengths_M
