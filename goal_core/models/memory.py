"""When a pass without gradients does not fit into memory: it runs in halves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from goal_core.basics.devices import is_out_of_memory

_LOG = logging.getLogger(__name__)


def forget_peak() -> None:
    """Let `peak_memory_mb` count from now on."""
    if peak_memory_mb():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> float:
    """The most memory in megabytes that torch has reserved on this process's GPU; 0 where it used none.

    The CUDA context and what libraries take for themselves come on top, some hundreds of megabytes.
    """
    return torch.cuda.max_memory_reserved() / 1e6 if torch.cuda.is_available() else 0.0


def in_halves(encode: Callable[..., Tensor], *tensors: Tensor, dim: int) -> Tensor:
    """Encode rows at once, or where they do not fit into memory in halves, down to single rows.

    The result is the same up to rounding, because kernels may add in another order at another size.

    Args:
        encode: maps rows of each tensor to a tensor with the same rows; computes no gradients.
        tensors: with the rows along their first dimension.
        dim: dimension of the rows in the result.
    """
    try:
        return encode(*tensors)
    except Exception as error:
        if not is_out_of_memory(error) or len(tensors[0]) < 2:
            raise
    # Outside of the handler, whose error still holds what was computed.
    rows = len(tensors[0])
    _tell(rows)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    parts = zip(*(torch.split(tensor, -(-rows // 2)) for tensor in tensors), strict=True)
    return torch.cat([in_halves(encode, *part, dim=dim) for part in parts], dim)


@cache
def _tell(rows: int) -> None:
    """Say so, once for each size."""
    _LOG.warning("a pass over %d rows does not fit into memory; it runs in halves, with the same result", rows)
