"""The objectives of several cells at once: one search, one gradient and one table of statistics for all.

Each cell has its own embeddings of the same batch. Cells whose pair or triplet weight is the same function with equal
parameters share its evaluation. Shapes have C cells in front: (C, N, D) embeddings, (C, A) anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from goal_core.basics.devices import full_precision, send
from goal_core.basics.registry import Entry
from goal_core.objectives.gradient_objective import GradientObjective, ShapeError, check_batch
from goal_core.objectives.mining import MinedBatch, mine
from goal_core.objectives.pair_weights import pair_weights
from goal_core.objectives.similarity import Place
from goal_core.objectives.sparse_gradient import SparseGradient
from goal_core.objectives.stats import ObjectiveStats, named, summary, violations
from goal_core.objectives.triplet_weights import triplet_weights
from goal_core.objectives.triplets import Triplets

SETS: Final = ("pos_set", "neg_set")
"""Names of the relative sets' sizes among the statistics."""

STACKED_PAIRS: Final = {"cpu": 512}
"""Largest batch whose cells' similarities are computed together. On the CPU those of a larger one leave the cache
before they are read again (measured, benchmarks/RESULTS.md), so that each cell's are faster by themselves."""

_PER_CELL: Final = ("pos", "neg", "valid", "finite", "triplet", "pair_pos", "pair_neg")
"""Fields that the statistics of one cell and of several have in common."""
_PLAIN: Final = GradientObjective(pair="con", triplet="con")
"""Stands for an objective that raised an error, whose numbers nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackedStats:
    """The triplets of C cells and their weights. Tensors stay on the device."""

    violations: Tensor
    """max(0, margin + s_n - s_p) of each cell's monitored hinge, 0 where there is no negative, shape (C, A)."""
    pos: Tensor
    """s_p of the 2N anchors (images, then texts), shape (C, A)."""
    neg: Tensor
    """s_n, shape (C, A); 0 where there is no negative."""
    valid: Tensor
    """Whether the anchor has a negative, shape (C, A), bool."""
    finite: Tensor
    """Whether all of the cell's similarities are finite, shape (C,), bool."""
    triplet: Tensor
    """T, shape (C, A); 0 where there is no negative."""
    pair_pos: Tensor
    """P+, shape (C, A)."""
    pair_neg: Tensor
    """P-, shape (C, A)."""
    set_sizes: Mapping[str, Tensor]
    """Members of the relative sets (`pos_set`, `neg_set`), shape (C, A); NaN in cells whose pair weight has none."""
    set_names: Sequence[frozenset[str]]
    """For each cell, which of them its pair weight used."""
    grad_norm: Tensor
    """Frobenius norm of the gradient with respect to both embeddings together, shape (C,)."""
    errors: Mapping[int, Exception] = field(default_factory=dict)
    """What the weights of a cell raised, or why they do not fit, by its number; the gradient of such a cell is 0."""

    @property
    def hinge(self) -> Tensor:
        """Sum over both directions of max(0, margin + s_n - s_p), shape (C,)."""
        return self.violations.sum(-1)

    def numbers(self) -> tuple[list[str], Tensor]:
        """Names of K statistics, and their values of all cells on the device, shape (K, C); see `as_dicts`."""
        sums = {"hinge": self.hinge, "triplets": self.valid.sum(-1), "grad_norm": self.grad_norm}
        per_anchor = {
            "pos_sim": self.pos,
            "neg_sim": self.neg,
            "triplet_weight": self.triplet,
            "pos_weight": self.pair_pos,
            "neg_weight": self.pair_neg,
            "active": (self.violations > 0).to(self.pos),
            **self.set_sizes,
        }
        return summary(sums, per_anchor, self.valid)

    def dicts(self, names: Sequence[str], values_KC: Sequence[Sequence[float]]) -> list[dict[str, float]]:
        """The statistics of each cell, from the names and values of :meth:`numbers`."""
        return [
            {name: value for name, value in named(names, values).items() if name not in SETS or name in used}
            for used, values in zip(self.set_names, zip(*values_KC, strict=True), strict=True)
        ]

    def as_dicts(self) -> list[dict[str, float]]:
        """What `ObjectiveStats.as_dict` gives of each cell; waits for the device once for all."""
        names, numbers_KC = self.numbers()
        return self.dicts(names, numbers_KC.tolist())


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
        self._objectives = tuple(objectives)
        self._triplet_groups = _groups([(triplet_weights[one.triplet], one.triplet_weight) for one in objectives])
        self._pair_groups = _groups([(pair_weights[one.pair], one.pair_weight) for one in objectives])

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
        if len(images_CND) != len(self._objectives) or texts_CND.shape != images_CND.shape:
            raise ShapeError(
                f"{len(self._objectives)} objectives need embeddings (C, N, D) of as many cells; "
                f"got images {tuple(images_CND.shape)}, texts {tuple(texts_CND.shape)}"
            )
        check_batch(images_CND[0], texts_CND[0], ids_N)
        with torch.no_grad(), full_precision(images_CND.device):
            dtype = torch.float64 if torch.float64 in (images_CND.dtype, texts_CND.dtype) else torch.float32
            images, texts = images_CND.detach().to(dtype), texts_CND.detach().to(dtype)
            separate = images.shape[1] > STACKED_PAIRS.get(images.device.type, images.shape[1])
            weighed = (self._weigh_each if separate else self._weigh)(images, texts, ids_N)
            hinge_C = weighed.stats.hinge
        scalars: Tensor = _AttachGradients.apply(images_CND, texts_CND, hinge_C, weighed.d_images, weighed.d_texts)
        return scalars, weighed.stats

    def _weigh(self, images_CND: Tensor, texts_CND: Tensor, ids_N: Tensor | None) -> _Weighed:
        """All cells at once."""
        mined = mine(images_CND, texts_CND, ids_N)
        found = _Found(sizes={}, names=[set() for _ in self._objectives], errors={})
        triplet_CA, pair_pos_CA, pair_neg_CA = (torch.zeros_like(mined.pos) for _ in range(3))
        _evaluate(self._triplet_groups, mined, found, lambda weight: (weight,), triplet_CA)
        _evaluate(self._pair_groups, mined, found, tuple, pair_pos_CA, pair_neg_CA)
        triplet_CA = torch.where(mined.valid, triplet_CA, 0)
        pull_C2N, push_C2N = (
            torch.where(mined.valid, triplet_CA * pair_CA, 0).view(len(triplet_CA), 2, -1)
            for pair_CA in (pair_pos_CA, pair_neg_CA)
        )
        # One batch of C N pairs, in which no pair meets one of another cell.
        first_C1 = torch.arange(len(mined.pos), device=mined.pos.device)[:, None] * mined.blocks.num_pairs
        gradient = SparseGradient(
            pull=-pull_C2N.sum(1).flatten(),
            push_i2t=push_C2N[:, 0].flatten(),
            push_t2i=push_C2N[:, 1].flatten(),
            text_of_image=(mined.hardest.text_of_image + first_C1).flatten(),
            image_of_text=(mined.hardest.image_of_text + first_C1).flatten(),
        )
        d_images, d_texts = gradient.for_both(images_CND.flatten(0, 1), texts_CND.flatten(0, 1))
        return self._weighed(
            d_images.view_as(images_CND),
            d_texts.view_as(texts_CND),
            found,
            pos=mined.pos,
            neg=mined.neg,
            valid=mined.valid,
            finite=mined.finite,
            triplet=triplet_CA,
            pair_pos=pair_pos_CA,
            pair_neg=pair_neg_CA,
        )

    def _weigh_each(self, images_CND: Tensor, texts_CND: Tensor, ids_N: Tensor | None) -> _Weighed:
        """One cell after the other."""
        found = _Found(sizes={}, names=[set() for _ in self._objectives], errors={})
        cells: list[ObjectiveStats] = []
        for number, objective in enumerate(self._objectives):
            batch = images_CND[number], texts_CND[number], ids_N
            try:
                cells.append(objective.weigh(*batch, check_finite=False))
            except Exception as error:
                found.errors[number] = error
                cells.append(_PLAIN.weigh(*batch, check_finite=False))
            for name, size in cells[-1].set_sizes.items():
                found.add(name, number, size, (len(self._objectives), len(size)))
                found.names[number].add(name)
        return self._weighed(
            torch.stack([cell.gradient.for_images(cell.texts) for cell in cells]),
            torch.stack([cell.gradient.for_texts(cell.images) for cell in cells]),
            found,
            **{name: torch.stack([getattr(cell, name) for cell in cells]) for name in _PER_CELL},
        )

    def _weighed(self, d_images: Tensor, d_texts: Tensor, found: _Found, **of_cells: Tensor) -> _Weighed:
        norms = (torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in (d_images, d_texts))
        margins = [objective.margin for objective in self._objectives]
        margin_C1 = send(torch.tensor(margins, dtype=d_images.dtype), d_images.device)[:, None]
        stats = StackedStats(
            violations=violations(margin_C1, of_cells["pos"], of_cells["neg"], of_cells["valid"]),
            grad_norm=torch.hypot(*norms),
            set_sizes=found.sizes,
            set_names=tuple(frozenset(names) for names in found.names),
            errors=found.errors,
            **of_cells,
        )
        return _Weighed(stats=stats, d_images=d_images, d_texts=d_texts)


class _Weighed(NamedTuple):
    stats: StackedStats
    d_images: Tensor
    """dL/dX of every cell, shape (C, N, D), before any upstream factor."""
    d_texts: Tensor
    """dL/dY, likewise."""


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


class _Found(NamedTuple):
    """What evaluating the weights gives besides them."""

    sizes: dict[str, Tensor]
    names: list[set[str]]
    errors: dict[int, Exception]

    def add(self, name: str, place: Place, size: Tensor, shape: Sequence[int]) -> None:
        if name not in self.sizes:
            self.sizes[name] = size.new_full(tuple(shape), torch.nan)
        self.sizes[name][place] = size


def _groups(weights: Sequence[tuple[Entry[Any], partial[Any]]]) -> list[_Group]:
    """Cells by function and parameters; a weight that does not come with goal-sweep is each cell's own."""
    groups: dict[object, _Group] = {}
    for cell, (entry, call) in enumerate(weights):
        alone = not entry.is_built_in
        key: object = cell if alone else (entry.name, tuple(sorted(call.keywords.items())))
        before = groups[key].cells if key in groups else ()
        groups[key] = _Group(function=call, cells=(*before, cell), alone=alone)
    return list(groups.values())


def _evaluate(
    groups: Sequence[_Group],
    mined: MinedBatch,
    found: _Found,
    parts: Callable[[Any], tuple[Any, ...]],
    *into_CA: Tensor,
) -> None:
    """Write the weights of each group's cells, which `parts` takes apart, into tensors of all cells."""
    for group in groups:
        place = group.place(mined.pos.device)
        sets = mined.sets_of(place)
        try:
            weights = parts(group.function(Triplets(pos=mined.pos[place], neg=mined.neg[place], sets=sets)))
            for target, weight in zip(into_CA, weights, strict=True):
                target[place] = weight
        except Exception as error:
            if not group.alone:
                raise
            found.errors[group.cells[0]] = error
            for target in into_CA:
                target[place] = 0
            continue
        for name, size in sets.sizes().items():
            found.add(name, place, size, mined.pos.shape)
            for cell in group.cells:
                found.names[cell].add(name)


class _AttachGradients(torch.autograd.Function):
    """Gives each cell's number its gradients with respect to the embeddings."""

    @staticmethod
    def forward(
        ctx: Any, images_CND: Tensor, texts_CND: Tensor, values_C: Tensor, d_images: Tensor, d_texts: Tensor
    ) -> Tensor:
        ctx.save_for_backward(d_images, d_texts)
        ctx.dtypes = images_CND.dtype, texts_CND.dtype
        return values_C.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        # Asking for the factor's value would make an accelerator wait; on the CPU it saves a copy of the gradients.
        plain = upstream_C.device.type == "cpu" and bool((upstream_C == 1).all())
        d_images, d_texts = (
            (gradient if plain else gradient * upstream_C.to(gradient)[:, None, None]).to(dtype) if needed else None
            for gradient, dtype, needed in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad[:2], strict=True)
        )
        return d_images, d_texts, None, None, None
