"""The tensors of a published checkpoint under our names and in our sizes, with every one accounted for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from goal_core.basics.errors import WeightsError
from goal_core.models.weights import misfits

_TABLE = "relative_position_bias_table"


def rename_tensors(
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    published_name: Callable[[str], str],
    *,
    known_leftovers: Mapping[str, str],
    source: str,
) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """Find each tensor of our model in a published checkpoint.

    Args:
        own: our model's state dict; only names, shapes and dtypes are used, so it may be on the meta device.
        given: the published checkpoint's tensors.
        published_name: the published name of each of our names.
        known_leftovers: regular expressions of published names that our model does not use, each with the reason.
        source: the file, for messages.

    Returns:
        All tensors of the model, by our names; and by the reason the names of those that it does not use.

    Raises:
        WeightsError: a tensor of our model is missing in the file or has the wrong shape, or the file contains one that
            is neither used nor a known leftover.
    """
    wanted = {name: published_name(name) for name in own}
    reasons = {
        name: next((why for rule, why in known_leftovers.items() if re.match(rule, name)), "")
        for name in sorted(given.keys() - set(wanted.values()))
    }
    if problems := misfits({wanted[name]: tensor for name, tensor in own.items()}, given, spare=reasons.get):
        raise WeightsError(f"{source} does not have the expected layout; tensors {problems}")
    tensors = {
        name: given[other].to(own[name].dtype) if other in given else torch.zeros((), dtype=own[name].dtype)
        for name, other in wanted.items()
    }
    leftovers: dict[str, list[str]] = {}
    for name, why in reasons.items():
        leftovers.setdefault(why, []).append(name)
    return tensors, leftovers


def resized_tables(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with a Swin's tables of relative-position biases resized for windows of another size.

    Args:
        given: tensors by name; a table is ((2 w - 1)^2, heads) for windows of w x w.
        wanted: tensors of the wanted shapes by the same names; only shapes are used.

    Source: X-VLM's published code, after BEiT: cubic splines on a grid that widens geometrically from the centre.
    """
    return {
        name: _resized(tensor, len(wanted[name]))
        if name.endswith(_TABLE) and name in wanted and len(wanted[name]) != len(tensor)
        else tensor
        for name, tensor in given.items()
    }


def _resized(table: Tensor, rows: int) -> Tensor:
    from scipy.interpolate import RectBivariateSpline  # needed for conversion only; training does without scipy

    old, new = math.isqrt(len(table)), math.isqrt(rows)
    known = _widening(old, new)
    sought = np.arange(-(new // 2), new // 2 + 1)
    resized = [
        RectBivariateSpline(known, known, bias.reshape(old, old).double().numpy(), s=0)(sought, sought)
        for bias in table.T
    ]
    return torch.from_numpy(np.stack(resized)).flatten(1).T.to(table.dtype).contiguous()


def _widening(old: int, new: int) -> np.ndarray:
    """Positions of ``old`` known values: 0, then steps of 1, q, q^2, ... up to the ends of the ``new`` grid."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        reached = (1 - ratio ** (old // 2)) / (1 - ratio)
        low, high = (low, ratio) if reached > new // 2 else (ratio, high)
    side = np.cumsum(ratio ** np.arange(old // 2))
    return np.concatenate([-side[::-1], [0.0], side])
