"""What a training can fail of, by its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.devices import is_out_of_memory
from goal_sweep.goal_core.basics.errors import (
    CollapsedError,
    DataError,
    DivergedError,
    TooLargeError,
    UnfinishedError,
    WeightsError,
    first_line,
)
from goal_sweep.goal_core.evaluation.retrieval import NonFiniteEmbeddingError
from goal_sweep.goal_core.objectives.gradient_objective import NonFiniteError


@contextmanager
def fits_or_says(what: str) -> Iterator[None]:
    """Around work whose memory does not depend on the batch: running out of it becomes a `TooLargeError`."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        way_out = "give units fewer cells (cells_per_unit) or a device with more memory"
        raise TooLargeError(f"{what} does not fit into memory; {way_out} ({first_line(error)})") from error


_KINDS: Final = {
    UnfinishedError: "refused",
    OSError: "storage",
    DataError | WeightsError: "inputs",
    DamagedError: "damaged",
    DivergedError | NonFiniteError | NonFiniteEmbeddingError: "diverged",
    CollapsedError: "collapsed",
    TooLargeError: "too_large",
    torch.AcceleratorError: "device",
}
"""Kinds of failures by their errors, of which the first counts."""


def failure_kind(error: Exception) -> str:
    """The kind of a failure; see :attr:`TrainingFailed.kind`."""
    if is_out_of_memory(error):
        return "memory"
    return next((kind for errors, kind in _KINDS.items() if isinstance(error, errors)), "error")
