"""A Swin's biases of relative positions for windows of another size."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_TABLE = "relative_position_bias_table"


def resized_tables(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with every table of relative positions at the size that is wanted.

    Args:
        given: tensors by name; a table is ((2 w - 1)^2, heads) for windows of w x w.
        wanted: tensors of the right shapes by the same names; only shapes are looked at.

    Source: X-VLM's published code, after BEiT: cubic splines on a grid that widens geometrically from the centre.
    """
    return {
        name: _resized(tensor, len(wanted[name]))
        if name.endswith(_TABLE) and name in wanted and len(wanted[name]) != len(tensor)
        else tensor
        for name, tensor in given.items()
    }


def _resized(table: Tensor, rows: int) -> Tensor:
    from scipy.interpolate import RectBivariateSpline  # converting is not training, which does without it

    old, new = math.isqrt(len(table)), math.isqrt(rows)
    known = _widening(old, new)
    sought = np.arange(-(new // 2), new // 2 + 1)
    resized = [
        RectBivariateSpline(known, known, bias.reshape(old, old).double().numpy(), s=0)(sought, sought)
        for bias in table.T
    ]
    return torch.from_numpy(np.stack(resized)).flatten(1).T.to(table.dtype).contiguous()


def _widening(old: int, new: int) -> np.ndarray:
    """Places of ``old`` known values: 0, then steps of 1, q, q^2, ... up to the ends of the ``new`` grid."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        reached = (1 - ratio ** (old // 2)) / (1 - ratio)
        low, high = (low, ratio) if reached > new // 2 else (ratio, high)
    side = np.cumsum(ratio ** np.arange(old // 2))
    return np.concatenate([-side[::-1], [0.0], side])
