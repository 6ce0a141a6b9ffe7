"""Tensors of a published checkpoint under our names, with every one of them accounted for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from goal_core.errors import WeightsError

_NAMED = 3
"""How many names a message shows of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Tensors of the published file that our model has no place for."""

    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """The outcome of :func:`rename_tensors`."""

    tensors: dict[str, Tensor]
    """By our names; all that the model has."""
    leftover: tuple[Leftover, ...]


def rename_tensors(
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    official_name: Callable[[str], str],
    *,
    known_leftovers: Mapping[str, str],
    source: str,
) -> Renamed:
    """Find each tensor of our model in a published state dict.

    Args:
        own: our model's state dict; only names, shapes and dtypes are looked at, so it may lie on the meta device.
        given: the published state dict.
        official_name: the published name of each of our names.
        known_leftovers: regular expressions of published names that our model has no use for, each with the reason.
        source: the file, for messages.

    Raises:
        WeightsError: a tensor of our model is not in the file or of another shape, or the file holds one that is
            neither used nor known to be superfluous.
    """
    wanted = {name: official_name(name) for name in own}
    absent = sorted(other for name, other in wanted.items() if other not in given and not _is_counter(name))
    misshapen = [
        f"{other} is {tuple(given[other].shape)}, not {tuple(own[name].shape)}"
        for name, other in wanted.items()
        if other in given and given[other].shape != own[name].shape
    ]
    rest = sorted(given.keys() - set(wanted.values()))
    sorted_out = {
        name: next((why for rule, why in known_leftovers.items() if re.match(rule, name)), "") for name in rest
    }
    strange = [name for name in rest if not sorted_out[name]]
    problems = [
        f"{len(names)} {what} ({', '.join(names[:_NAMED])}{', ...' if len(names) > _NAMED else ''})"
        for what, names in (("missing", absent), ("of another shape", misshapen), ("without a place", strange))
        if names
    ]
    if problems:
        raise WeightsError(f"{source} is not of the layout that it should have; tensors {'; '.join(problems)}")
    tensors = {
        name: given[other].to(own[name].dtype) if other in given else torch.zeros((), dtype=own[name].dtype)
        for name, other in wanted.items()
    }
    reasons = dict.fromkeys(sorted_out.values())
    leftover = tuple(
        Leftover(reason=why, names=tuple(name for name in rest if sorted_out[name] == why)) for why in reasons
    )
    return Renamed(tensors=tensors, leftover=leftover)


def _is_counter(name: str) -> bool:
    """Batches seen by a batch normalisation: files older than PyTorch 0.4.1 lack it, and nothing reads it."""
    return name.endswith("num_batches_tracked")
