"""Evaluation: recall of cross-modal retrieval."""

from __future__ import annotations

from goal_core.evaluation.reranking import reranked_ranks
from goal_core.evaluation.retrieval import (
    EmbeddingError,
    NonFiniteEmbeddingError,
    RetrievalMetrics,
    RetrievalRanks,
    retrieval_metrics,
    retrieval_ranks,
)

__all__ = [
    "EmbeddingError",
    "NonFiniteEmbeddingError",
    "RetrievalMetrics",
    "RetrievalRanks",
    "reranked_ranks",
    "retrieval_metrics",
    "retrieval_ranks",
]
