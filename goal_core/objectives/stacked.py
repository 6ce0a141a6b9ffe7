"""The objectives of several cells at once: one search, one gradient and one table of statistics for all.

Each cell has its own embeddings of the same batch. Cells whose pair or triplet weight is the same function with equal
parameters share its evaluation. Shapes have C cells in front: (C, N, D) embeddings, (C, A) anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective, Objective, ShapeError, check_batch
from goal_sweep.goal_core.objectives.mining import MinedBatch, Place, mine
from goal_sweep.goal_core.objectives.pair_weights import pair_weights
from goal_sweep.goal_core.objectives.stats import ObjectiveStats
from goal_sweep.goal_core.objectives.triplet_weights import triplet_weights
from goal_sweep.goal_core.objectives.triplets import Triplets


class StackedObjectives(Objective):
    """The objectives of C cells, as a callable on their embeddings of one batch, (C, N, D).

    Equal to each cell's `GradientObjective` but for rounding. Nothing synchronises with the device: non-finite
    embeddings do not raise, they show in `ObjectiveStats.finite`, and do not reach other cells. A weight that does not
    come with goal-sweep may use a whole batch (a mean, a rank), so it is called for each cell by itself; what it raises
    is kept in `ObjectiveStats.errors`.
    """

    def __init__(self, objectives: Sequence[GradientObjective]) -> None:
        self._margins = torch.tensor([objective.margin for objective in objectives], dtype=torch.float64)
        self._for_triplets = _groups([(triplet_weights[each.triplet], each.triplet_weight) for each in objectives])
        self._for_pairs = _groups([(pair_weights[each.pair], each.pair_weight) for each in objectives])

    def _check(self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None) -> None:
        if len(image_emb) != len(self._margins) or text_emb.shape != image_emb.shape:
            shapes = f"images {tuple(image_emb.shape)}, texts {tuple(text_emb.shape)}"
            raise ShapeError(
                f"{len(self._margins)} objectives need embeddings (C, N, D) of as many cells; got {shapes}"
            )
        check_batch(image_emb[0], text_emb[0], ids)

    def _weigh(self, images: Tensor, texts: Tensor, ids_N: Tensor | None) -> ObjectiveStats:
        mined = mine(images, texts, ids_N)
        triplet, pair_pos, pair_neg = (torch.zeros_like(mined.pos) for _ in range(3))
        set_sizes, errors = dict[str, Tensor](), dict[int, Exception]()
        _fill(self._for_triplets, mined, (triplet,), set_sizes, errors)
        _fill(self._for_pairs, mined, (pair_pos, pair_neg), set_sizes, errors)
        margin = send(self._margins.to(mined.pos.dtype), mined.pos.device)[:, None]
        weights = triplet, pair_pos, pair_neg
        stats = ObjectiveStats.of(mined, weights, margin=margin, set_sizes=set_sizes, errors=errors)
        return replace(stats, gradient=stats.gradient.computed())


class _Group(NamedTuple):
    """Cells that share the evaluation of one weight."""

    function: Callable[[Triplets], Any]
    cells: tuple[int, ...]
    alone: bool
    """Whether it is a single cell's, to be called with anchors (A,) rather than (C', A)."""

    def place(self, device: torch.device) -> Place:
        """The cells as an index."""
        first, last = self.cells[0], self.cells[-1]
        if self.alone:
            return first
        apart = self.cells[1] - first if len(self.cells) > 1 else 1
        if self.cells == tuple(range(first, last + 1, apart)):  # which needs no copies
            return slice(first, last + 1, apart)
        return send(torch.tensor(self.cells), device)


def _groups(weights: Sequence[tuple[Entry[Any], partial[Any]]]) -> list[_Group]:
    """Cells by function and parameters; a weight that does not come with goal-sweep is each cell's own."""
    groups: dict[object, _Group] = {}
    for cell, (entry, call) in enumerate(weights):
        alone = not entry.is_built_in
        key: object = cell if alone else (entry.name, tuple(sorted(call.keywords.items())))
        before = groups[key].cells if key in groups else ()
        groups[key] = _Group(function=call, cells=(*before, cell), alone=alone)
    return list(groups.values())


def _fill(
    groups: Sequence[_Group],
    mined: MinedBatch,
    targets: Sequence[Tensor],
    set_sizes: dict[str, Tensor],
    errors: dict[int, Exception],
) -> None:
    """Write the weights of each group's cells into targets (C, A): one of a triplet weight, two of a pair weight."""
    for group in groups:
        place = group.place(mined.pos.device)
        triplets, sets = mined.triplets(place)
        try:
            weights = group.function(triplets)
            parts = weights if isinstance(weights, tuple) else (weights,)
            for target, weight in zip(targets, parts, strict=True):
                target[place] = weight
        except Exception as error:
            if not group.alone:
                raise
            errors[group.cells[0]] = error
            for target in targets:
                target[place] = 0
            continue
        for name, size in sets.sizes().items():
            set_sizes.setdefault(name, torch.full_like(mined.pos, torch.nan))[place] = size
