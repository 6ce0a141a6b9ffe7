"""Embeddings of a split, and recalls under the names they are recorded by, such as `val/i2t_r1`, also re-ranked.

Re-ranking has two stages: the nearest items by similarity are ranked by a score that is too costly for every pair.
Shape suffixes as in :mod:`goal_core.evaluation.retrieval`, and ``Q`` queries of one block, ``K`` candidates of each.

Source: the evaluation of ALBEF (Li et al. 2021, arXiv:2107.07651) and X-VLM (Zeng et al. 2022, arXiv:2111.08276).
Deviates: there a sort breaks ties; here ties count against the model, in both stages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.devices import arithmetic, full_precision, send
from goal_sweep.goal_core.basics.errors import CollapsedError, warn
from goal_sweep.goal_core.data import ImageConfig, Split, index_parts
from goal_sweep.goal_core.data.inputs import Captions, DecodedImages, captions_of
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.evaluation import retrieval
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.models.systems.xvlm import XvlmHeads
from goal_sweep.goal_core.objectives.stats import describe_unsound, no_unit_vectors

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
    """Caption numbers, padded tokens (C, L) and lengths (C,), in chunks, the longest first, which saves padding."""
    order = np.argsort(-captions.lengths, kind="stable")
    for part in index_parts(len(order), TEXT_CHUNK):
        alive()
        yield order[part], *captions.batch(order[part])


def embed_split(encoder: Encoder, split: EvalSplit) -> Embedded:
    """Embed a split. The embeddings of several cells have the cells in front."""
    encoder.train(False)
    with torch.inference_mode(), arithmetic(encoder.precision):
        image_ND = torch.cat([encoder.images(chunk).float() for chunk in split.inputs()], -2)
    return image_ND, embed_captions(encoder, split.captions, split.alive)


def embed_captions(encoder: Encoder, captions: Captions, alive: Callable[[], None] = lambda: None) -> Tensor:
    """Embeddings of captions in their order, (M, D) float32, on the device; as by :func:`embed_split`."""
    rows, chunks = [], []
    encoder.train(False)
    with torch.inference_mode(), arithmetic(encoder.precision):
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
        unsound = describe_unsound(images=embedded[0], captions=embedded[1])
        raise retrieval.NonFiniteEmbeddingError(f"{where}: {unsound}")
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


PAIRS = 256
"""Pairs per forward pass of the cross encoder. Fixed, because a kernel may round differently at another size."""
QUERIES = 64
"""Queries of a block, whose candidates are scored in one call."""
Score = Callable[[Tensor, Tensor], Tensor]
"""Scores of P pairs, (P,), from image indices and caption indices, each (P,) int64; higher is a better match."""


def recalls_of(encoder: Encoder, split: EvalSplit, embedded: Embedded | None = None) -> dict[str, float]:
    """Recalls on the full ranking as ``<split>/i2t_r1`` ... ``<split>/rsum``, percent; they select the epoch.

    The embeddings may be given where they are known already, of a model that does not re-rank.
    """
    if encoder.heads.rerank_top:
        return _named(split.name, _rerank_split(encoder, split)[1].metrics())
    image_ND, text_MD = check_embedded(embedded or embed_split(encoder, split), split.name)
    return _named(split.name, retrieval.retrieval_metrics(image_ND, text_MD, split.caption_image))


def all_recalls_of(
    encoder: Encoder, split: EvalSplit, embedded: Embedded | None = None
) -> tuple[dict[str, float], retrieval.RetrievalRanks]:
    """As :func:`recalls_of`, with the additional recalls that are reported, and the ranks behind the full ranking.

    Where the split has several thousand images exactly, ``<split>_1k/...`` is the mean over folds of 1,000 images, as
    COCO results are reported. A model that re-ranks has no such folds; ``<split>_embed/...`` is the recall of its
    embeddings alone.
    """
    if encoder.heads.rerank_top:
        embedded, ranks = _rerank_split(encoder, split)
        of_embeddings = retrieval.retrieval_metrics(*embedded, split.caption_image)
        return _named(split.name, ranks.metrics()) | _named(f"{split.name}_embed", of_embeddings), ranks
    embedded = check_embedded(embedded or embed_split(encoder, split), split.name)
    return recalls_between(*embedded, split.caption_image, split.name)


def recalls_between(
    image_ND: Tensor, text_MD: Tensor, caption_image: Tensor, name: str
) -> tuple[dict[str, float], retrieval.RetrievalRanks]:
    """Recalls of embeddings, ``<name>/...`` and ``<name>_1k/...``, and ranks, as by :func:`all_recalls_of`.

    Images (N, D) and captions (M, D) are float32; the index of each caption's image (M,) may be on any device.
    """
    ranks = retrieval.retrieval_ranks(image_ND, text_MD, caption_image)
    recalls = _named(name, ranks.metrics())
    folds, rest = divmod(len(image_ND), 1000)
    if folds > 1 and rest == 0:
        recalls |= _named(f"{name}_1k", retrieval.retrieval_metrics(image_ND, text_MD, caption_image, folds=folds))
    return recalls, ranks


def _named(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}/{key}": value for key, value in metrics.items()}


def _rerank_split(encoder: Encoder, split: EvalSplit) -> tuple[Embedded, retrieval.RetrievalRanks]:
    """Embed a split and rank it in two stages, by a model whose heads are `XvlmHeads`.

    The score's inputs for every image and caption stay on the device: 3 GB each for COCO's 5,000 test images at
    384 px and their 25,000 captions.
    """
    heads = encoder.heads
    assert isinstance(heads, XvlmHeads)
    encoder.train(False)
    with torch.inference_mode(), arithmetic(encoder.precision):
        tokens_NRF = torch.cat([heads.image_tokens(encoder.features(chunk)) for chunk in split.inputs()])
        lengths_M, states_MLW = torch.from_numpy(split.captions.lengths), torch.empty(0)
        for rows, tokens, lengths in caption_chunks(split.captions, split.alive):
            states = heads.text_states(tokens.to(encoder.device), lengths)
            if not len(states_MLW):  # the longest come first
                states_MLW = states.new_zeros(len(split.captions), *states.shape[1:])
            states_MLW[torch.from_numpy(rows).to(encoder.device), : states.shape[1]] = states
        image_ND = torch.cat([heads.embed_images(part) for part in torch.split(tokens_NRF, TEXT_CHUNK)])
        text_MD = torch.cat([heads.embed_texts(part) for part in torch.split(states_MLW, TEXT_CHUNK)])
        check_embedded((image_ND, text_MD), split.name)

        def score(images_P: Tensor, texts_P: Tensor) -> Tensor:
            parts = []
            for images, texts in zip(torch.split(images_P, PAIRS), torch.split(texts_P, PAIRS), strict=True):
                split.alive()
                lengths = lengths_M[texts.cpu()]
                parts.append(heads.match(tokens_NRF[images], states_MLW[texts, : int(lengths.max())], lengths))
            return torch.cat(parts)

        ranks = reranked_ranks(image_ND, text_MD, split.caption_image, score, heads.rerank_top)
    return (image_ND, text_MD), ranks


def reranked_ranks(
    image_emb: Tensor, text_emb: Tensor, text_to_image: Tensor, score: Score, top: int, *, block: int = QUERIES
) -> retrieval.RetrievalRanks:
    """The rank from 0 of the right answer of every query after its nearest items are re-ranked by a score.

    The candidates of a query are its ``top`` nearest items by dot product, except those that tie with the first item
    left out, so that no sort decides. They come first, in descending order of score; all others follow by similarity.
    Ties count against the model: a wrong candidate of equal score is ranked before the right one.

    Args:
        top: candidates of each query, at least 1; all items if there are fewer.
    """
    nearest = retrieval.retrieval_ranks(image_emb, text_emb, text_to_image)
    images = image_emb.float(), torch.arange(len(image_emb), device=image_emb.device)
    texts = text_emb.float(), text_to_image.to(image_emb.device, torch.int64)
    return retrieval.RetrievalRanks(
        i2t=_rerank(images, texts, nearest.i2t, score, top, block),
        t2i=_rerank(texts, images, nearest.t2i, lambda texts_P, images_P: score(images_P, texts_P), top, block),
    )


def _rerank(
    queries: tuple[Tensor, Tensor], items: tuple[Tensor, Tensor], nearest: Tensor, score: Score, top: int, block: int
) -> Tensor:
    """Ranks of one direction, from embeddings in fp32 and the image of each query and item.

    ``nearest`` holds the ranks by similarity, for queries without a right candidate.
    """
    (query_QD, image_of_query), (item_ND, image_of_item), ranks = queries, items, nearest.clone()
    for start in range(0, len(query_QD), block):
        rows = slice(start, start + block)
        with torch.no_grad(), full_precision(query_QD.device):
            values, index = (query_QD[rows] @ item_ND.T).topk(min(top + 1, len(item_ND)), dim=1)
        candidates_QK = index[:, :top]
        right_QK = image_of_item[candidates_QK] == image_of_query[rows, None]
        # A candidate must exceed the value of the first item left out, where there is one.
        inside_QK = values[:, :top] > values[:, top:] if values.shape[1] > top else torch.ones_like(right_QK)
        admitted_QK = right_QK & inside_QK
        numbers_QK = torch.arange(start, start + len(index), device=index.device)[:, None].expand_as(candidates_QK)
        scores_QK = score(numbers_QK.flatten(), candidates_QK.flatten()).float().view(candidates_QK.shape)
        if not bool(scores_QK.isfinite().all()):
            where = f"the candidates of queries {start} to {rows.stop - 1}"
            raise retrieval.NonFiniteEmbeddingError(f"a score is not finite among {where}")
        best_Q1 = scores_QK.masked_fill(~admitted_QK, -torch.inf).amax(dim=1, keepdim=True)
        beaten_Q = ((scores_QK >= best_Q1) & ~right_QK & inside_QK).sum(dim=1)
        ranks[rows] = torch.where(admitted_QK.any(dim=1), beaten_Q, nearest[rows])
    return ranks
