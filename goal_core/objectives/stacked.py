"""The objectives of several cells at once: one search, one gradient and one table of statistics for all.

Each cell has its own embeddings of the same batch. Cells whose pair or triplet weight is the same function with equal
parameters share its evaluation. Shapes have C cells in front: (C, N, D) embeddings, (C, A) anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from goal_core.basics.devices import full_precision, send
from goal_core.basics.registry import Entry
from goal_core.objectives.gradient_objective import GradientObjective, ShapeError, check_batch
from goal_core.objectives.mining import AttachGradients, MinedBatch, Place, mine
from goal_core.objectives.pair_weights import pair_weights
from goal_core.objectives.stats import TripletStats, named
from goal_core.objectives.triplet_weights import triplet_weights
from goal_core.objectives.triplets import Triplets

SETS: Final = ("pos_set", "neg_set")
"""Names of the relative sets' sizes among the statistics; NaN of a cell whose pair weight used none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedStats(TripletStats):
    """The statistics of C cells."""

    norms: Tensor
    """Frobenius norm of each cell's gradient with respect to both embeddings together, shape (C,)."""
    errors: Mapping[int, Exception] = field(default_factory=dict)
    """What the weights of a cell raised, or why they do not fit, by its number; the gradient of such a cell is 0."""

    def grad_norm(self) -> Tensor:
        """The norms, shape (C,)."""
        return self.norms

    def dicts(self, names: Sequence[str], values_KC: Sequence[Sequence[float]]) -> list[dict[str, float]]:
        """The statistics of each cell, from the names and values of :meth:`numbers`."""
        return [
            {name: value for name, value in named(names, values).items() if name not in SETS or not isnan(value)}
            for values in zip(*values_KC, strict=True)
        ]


class StackedObjectives:
    """The objectives of C cells, as a callable on their embeddings of one batch.

    Equal to each cell's `GradientObjective` but for rounding. Nothing synchronises with the device: non-finite
    embeddings do not raise, they show in `StackedStats.finite`, and do not reach other cells. A weight that does not
    come with goal-sweep may use a whole batch (a mean, a rank), so it is called for each cell by itself; what it raises
    is kept in `StackedStats.errors`.

    Args:
        objectives: those of the cells, at least one.
    """

    def __init__(self, objectives: Sequence[GradientObjective]) -> None:
        self._margins = torch.tensor([objective.margin for objective in objectives], dtype=torch.float64)
        self._for_triplets = _groups([(triplet_weights[each.triplet], each.triplet_weight) for each in objectives])
        self._for_pairs = _groups([(pair_weights[each.pair], each.pair_weight) for each in objectives])

    def __call__(self, images_CND: Tensor, texts_CND: Tensor, ids_N: Tensor | None = None) -> Tensor:
        """The cells' scalars, shape (C,), to sum and call `backward` on; see :meth:`forward_with_stats`."""
        return self.forward_with_stats(images_CND, texts_CND, ids_N)[0]

    def forward_with_stats(
        self, images_CND: Tensor, texts_CND: Tensor, ids_N: Tensor | None = None
    ) -> tuple[Tensor, StackedStats]:
        """Compute every cell's hinge, to which its gradient is attached, and the statistics.

        Args:
            images_CND: L2-normalised image embeddings, shape (C, N, D), any floating dtype.
            texts_CND: L2-normalised text embeddings of the same pairs, likewise.
            ids_N: pairs of the same id are not negative pairs, shape (N,); None: all ids differ.

        Returns:
            The hinges, shape (C,), float32 (float64 for float64 embeddings), and the statistics.

        Raises:
            ShapeError: the shapes, dtypes or devices do not fit.
        """
        if len(images_CND) != len(self._margins) or texts_CND.shape != images_CND.shape:
            raise ShapeError(
                f"{len(self._margins)} objectives need embeddings (C, N, D) of as many cells; "
                f"got images {tuple(images_CND.shape)}, texts {tuple(texts_CND.shape)}"
            )
        check_batch(images_CND[0], texts_CND[0], ids_N)
        with torch.no_grad(), full_precision(images_CND.device):
            dtype = torch.float64 if torch.float64 in (images_CND.dtype, texts_CND.dtype) else torch.float32
            stats, gradients = self._weigh(images_CND.detach().to(dtype), texts_CND.detach().to(dtype), ids_N)
            hinge_C = stats.hinge
        scalars: Tensor = AttachGradients.apply(images_CND, texts_CND, hinge_C, *gradients)
        return scalars, stats

    def _weigh(
        self, images_CND: Tensor, texts_CND: Tensor, ids_N: Tensor | None
    ) -> tuple[StackedStats, tuple[Tensor, Tensor]]:
        """The statistics, and the gradients dL/dX and dL/dY of every cell, (C, N, D), before any upstream factor."""
        mined = mine(images_CND, texts_CND, ids_N)
        weights = _Weights(mined)
        weights.evaluate(self._for_triplets, weights.triplet)
        weights.evaluate(self._for_pairs, weights.pair_pos, weights.pair_neg)
        triplet_CA = torch.where(mined.valid, weights.triplet, 0)
        gradient = mined.gradient(triplet_CA, weights.pair_pos, weights.pair_neg)
        d_images = gradient.for_images(texts_CND.flatten(0, 1)).view_as(images_CND)
        d_texts = gradient.for_texts(images_CND.flatten(0, 1)).view_as(texts_CND)
        stats = StackedStats(
            margin=send(self._margins.to(mined.pos.dtype), mined.pos.device)[:, None],
            pos=mined.pos,
            neg=mined.neg,
            valid=mined.valid,
            finite=mined.finite,
            triplet=triplet_CA,
            pair_pos=weights.pair_pos,
            pair_neg=weights.pair_neg,
            set_sizes=weights.set_sizes,
            norms=torch.hypot(*(torch.linalg.vector_norm(rows.flatten(1), dim=1) for rows in (d_images, d_texts))),
            errors=weights.errors,
        )
        return stats, (d_images, d_texts)


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


class _Weights:
    """The weights of C cells, (C, A) each, filled group by group; with the sizes of their sets, and errors."""

    def __init__(self, mined: MinedBatch) -> None:
        self._mined = mined
        self.triplet, self.pair_pos, self.pair_neg = (torch.zeros_like(mined.pos) for _ in range(3))
        self.set_sizes: dict[str, Tensor] = {}
        self.errors: dict[int, Exception] = {}

    def evaluate(self, groups: Sequence[_Group], *targets: Tensor) -> None:
        """Write the weights of each group's cells into the targets: one for a triplet weight, two for a pair weight."""
        for group in groups:
            place = group.place(self._mined.pos.device)
            triplets, sets = self._mined.triplets(place)
            try:
                weights = group.function(triplets)
                parts = weights if isinstance(weights, tuple) else (weights,)
                for target, weight in zip(targets, parts, strict=True):
                    target[place] = weight
            except Exception as error:
                if not group.alone:
                    raise
                self.errors[group.cells[0]] = error
                for target in targets:
                    target[place] = 0
                continue
            for name, size in sets.sizes().items():
                if name not in self.set_sizes:
                    self.set_sizes[name] = torch.full_like(self._mined.pos, torch.nan)
                self.set_sizes[name][place] = size
