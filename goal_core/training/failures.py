"""How a cell can fail, and the words for it."""

from __future__ import annotations

import torch

from goal_core.errors import GoalError
from goal_core.evaluation import NonFiniteEmbeddingError
from goal_core.objectives import NonFiniteError


class DivergedError(GoalError):
    """Training produced a NaN or an infinity."""


class CollapsedError(GoalError):
    """The embeddings fell together: negatives are as near as positives, and stay so."""


def failure_kind(error: Exception) -> str:
    """`diverged`, `collapsed`, `storage`, `memory` or `error`; the first two would only repeat."""
    if isinstance(error, OSError):
        return "storage"
    if isinstance(error, DivergedError | NonFiniteError | NonFiniteEmbeddingError):
        return "diverged"
    if isinstance(error, CollapsedError):
        return "collapsed"
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
        return "memory"
    return "error"


def failure_reason(error: Exception) -> str:
    """One line that says what happened."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, GoalError) else f"{type(error).__name__}: {text}"
