"""Two-stage ranking: the nearest items by similarity are re-ranked by a score that is too costly for every pair.

Shape suffixes as in :mod:`goal_core.evaluation.retrieval`, and ``Q`` queries of one block, ``K`` candidates of each.

Source: the evaluation of ALBEF (Li et al. 2021, arXiv:2107.07651) and X-VLM (Zeng et al. 2022, arXiv:2111.08276).
Deviates: there a sort breaks ties; here ties count against the model, in both stages.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from goal_core.basics.devices import full_precision
from goal_core.basics.errors import ConfigError
from goal_core.evaluation.retrieval import NonFiniteEmbeddingError, RetrievalRanks, retrieval_ranks

Score = Callable[[Tensor, Tensor], Tensor]
"""Scores of P pairs, (P,), from image indices and caption indices, each (P,) int64; higher is a better match."""

QUERIES = 64
"""Queries of a block."""


def reranked_ranks(
    image_emb: Tensor, text_emb: Tensor, text_to_image: Tensor, score: Score, top: int, *, block: int = QUERIES
) -> RetrievalRanks:
    """The rank of the right answer of every query after its nearest items are re-ranked by a score.

    The candidates of a query are its ``top`` nearest items by dot product, except those that tie with the first item
    left out, so that no sort decides. They come first, in descending order of score; all others follow by similarity.
    Ties count against the model: a wrong candidate of equal score is ranked before the right one.

    Args:
        image_emb: shape (N, D), floating point.
        text_emb: shape (M, D), floating point, on the same device.
        text_to_image: shape (M,), integer; the row of ``image_emb`` that each caption describes.
        score: scores pairs.
        top: candidates of each query, at least 1; all items if there are fewer.
        block: queries whose candidates are scored in one call.

    Returns:
        Ranks from 0 in the order of the inputs.

    Raises:
        ConfigError: ``top`` is below 1.
        EmbeddingError: as in :func:`~goal_core.evaluation.retrieval.retrieval_ranks`; or a score is not finite.
    """
    if top < 1:
        raise ConfigError(f"re-ranking needs at least 1 candidate, got top={top}")
    nearest = retrieval_ranks(image_emb, text_emb, text_to_image)
    owners_M = text_to_image.to(image_emb.device, torch.int64)
    images_N = torch.arange(len(image_emb), device=image_emb.device)

    def caption_score(queries_P: Tensor, items_P: Tensor) -> Tensor:
        return score(items_P, queries_P)

    return RetrievalRanks(
        i2t=_rerank(image_emb, text_emb, images_N, owners_M, nearest.i2t, score, top, block),
        t2i=_rerank(text_emb, image_emb, owners_M, images_N, nearest.t2i, caption_score, top, block),
    )


def _rerank(
    query_emb: Tensor,
    item_emb: Tensor,
    image_of_query: Tensor,
    image_of_item: Tensor,
    nearest: Tensor,
    score: Score,
    top: int,
    block: int,
) -> Tensor:
    """Ranks of one direction; ``nearest`` holds the ranks by similarity, for queries without a right candidate."""
    queries, items, ranks = query_emb.float(), item_emb.float(), nearest.clone()
    for start in range(0, len(queries), block):
        rows = slice(start, start + block)
        with torch.no_grad(), full_precision(queries.device):
            values, index = (queries[rows] @ items.T).topk(min(top + 1, len(items)), dim=1)
        candidates_QK = index[:, :top]
        right_QK = image_of_item[candidates_QK] == image_of_query[rows, None]
        # A candidate must exceed the value of the first item left out, where there is one.
        inside_QK = values[:, :top] > values[:, top:] if values.shape[1] > top else torch.ones_like(right_QK)
        admitted_QK = right_QK & inside_QK
        numbers_QK = torch.arange(start, start + len(index), device=index.device)[:, None].expand_as(candidates_QK)
        scores_QK = score(numbers_QK.flatten(), candidates_QK.flatten()).float().view(candidates_QK.shape)
        if not bool(scores_QK.isfinite().all()):
            raise NonFiniteEmbeddingError(
                f"a score is not finite among the candidates of queries {start} to {rows.stop - 1}"
            )
        best_Q1 = scores_QK.masked_fill(~admitted_QK, -torch.inf).amax(dim=1, keepdim=True)
        beaten_Q = ((scores_QK >= best_Q1) & ~right_QK & inside_QK).sum(dim=1)
        ranks[rows] = torch.where(admitted_QK.any(dim=1), beaten_Q, nearest[rows])
    return ranks
