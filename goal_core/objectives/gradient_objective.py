"""A GOAL objective on a batch of embeddings: mine, weigh, attach the gradient; of one cell, or of several at once.

Several cells have their own embeddings of the same batch, and get one search, one gradient and one table of statistics.
Those whose pair or triplet weight is the same function with equal parameters share its evaluation. Their shapes have C
cells in front: (C, N, D) embeddings, (C, A) anchors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import full_precision, send
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.goal_core.objectives.mining import MinedBatch, Place, mine
from goal_sweep.goal_core.objectives.sparse_gradient import AttachGradient, DenseGradient
from goal_sweep.goal_core.objectives.stats import ObjectiveStats, describe_unsound, warn_of_lengths
from goal_sweep.goal_core.objectives.variants import LOSS, resolve_parameters
from goal_sweep.goal_core.objectives.weights import (
    FROM_MODEL,
    LARGEST_SCALE,
    PairWeights,
    Triplets,
    Value,
    baselines,
    pair_weights,
    triplet_weights,
)

MONITOR_MARGIN: Final = 0.2
"""Margin of the monitored hinge where the triplet weight has none, so that all objectives log the same number."""


class NonFiniteError(GoalError):
    """The embeddings of a batch contain a NaN or an infinity, or their similarities overflow, or have no direction."""


class ShapeError(GoalError):
    """The embeddings of a batch do not fit each other."""


class Objective:
    """What the objective of one batch and those of several cells have in common: a callable on embeddings.

    The result's `backward` adds dL/dX and dL/dY, summed over the batch and both retrieval directions, times whatever
    gradient reaches the result (loss scale, warm-up factor, accumulation). The result's *value* is the hinge
    sum max(0, margin + s_n - s_p) of the hardest negatives, comparable between objectives; most have no loss to show.

    Half and single precision are computed in float32 (autocast or not), double in float64. Pairs without a negative
    (a batch of one; all others masked) contribute nothing. On the CPU the same input gives the same bits.
    """

    _told = True
    """Whether nothing is left to tell of the lengths of embeddings."""

    def __call__(self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None = None) -> Tensor:
        """The scalar to call `backward` on, shape (); of C cells one each, (C,), to be summed.

        A first call with embeddings that are not of unit length warns.

        Args:
            image_emb: L2-normalised image embeddings, shape (N, D), any floating dtype; of C cells, (C, N, D).
            ids: which pairs share an image, shape (N,), integers. Two pairs of the same id are not negative pairs and
                not in each other's relative sets. None: all ids differ.
        """
        scalar = self.forward_with_stats(image_emb, text_emb, ids)[0]
        if not self._told:
            self._told = True
            warn_of_lengths(image_emb.detach(), text_emb.detach(), "the objectives are defined for cosines")
        return scalar

    def forward_with_stats(
        self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, ObjectiveStats]:
        """As a call, with the statistics of the batch; arguments and errors as those of a call."""
        self._check(image_emb, text_emb, ids)
        dtype = torch.float64 if torch.float64 in (image_emb.dtype, text_emb.dtype) else torch.float32
        with torch.no_grad(), full_precision(image_emb.device):
            stats = self._weigh(image_emb.detach().to(dtype), text_emb.detach().to(dtype), ids)
            hinge = stats.hinge
        scalar: Tensor = AttachGradient.apply(image_emb, text_emb, hinge, stats.gradient)
        return scalar, stats

    def _check(self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None) -> None:
        """Check that two embeddings (N, D) and their ids (N,) are one batch of pairs; else a `ShapeError`."""
        shapes = f"got images {tuple(image_emb.shape)}, texts {tuple(text_emb.shape)}"
        if image_emb.ndim != 2 or image_emb.shape != text_emb.shape:
            must = "be pairs of equal shape (N, D), row i of one with row i of the other"
            raise ShapeError(f"embeddings must {must}; {shapes}")
        if image_emb.numel() == 0:
            raise ShapeError(f"a batch needs at least one pair and one dimension; {shapes}")
        if not (image_emb.is_floating_point() and text_emb.is_floating_point()):
            raise ShapeError(f"embeddings must be floating point; got {image_emb.dtype} and {text_emb.dtype}")
        if image_emb.device != text_emb.device:
            raise ShapeError(f"embeddings must be on one device; got {image_emb.device} and {text_emb.device}")
        if ids is not None and ids.shape != image_emb.shape[:1]:
            raise ShapeError(f"ids must have shape ({len(image_emb)},), one per pair; got {tuple(ids.shape)}")

    def _weigh(self, images: Tensor, texts: Tensor, ids_N: Tensor | None) -> ObjectiveStats:
        """The batch's weights, gradient and statistics, from embeddings that carry no graph."""
        raise NotImplementedError


class GradientObjective(Objective):
    """One of the objectives, as a callable on a batch of paired embeddings; see :class:`Objective`.

    Args:
        variant: one of `VARIANTS`: `paper`, or another reading of the constants.
        check_finite: raise on non-finite input, which synchronises with the device on every call, and warn of lengths.
            A caller that runs many objectives can switch it off and check `ObjectiveStats.finite` of all at once.

    Source: arXiv:2210.13188, Sec. 3.

    Deviates: gradients of the hard negatives themselves are included; the authors' code includes them too, their
        equations of dL/dx and dL/dy do not.
    """

    def __init__(
        self, *, pair: str, triplet: str, variant: str = "paper", check_finite: bool = True, **params: Value
    ) -> None:
        values = resolve_parameters(pair, triplet, variant, params)
        self.name, self.pair, self.triplet = f"{pair}/{triplet}", pair, triplet
        self.params = values
        self.margin = float(values.get("margin", MONITOR_MARGIN))
        self.check_finite, self._told = check_finite, not check_finite
        for_triplet, for_pair = triplet_weights[triplet], pair_weights[pair]
        own = [{name: values[name] for name in entry.parameters} for entry in (for_triplet, for_pair)]
        self.triplet_weight: partial[Tensor] = partial(for_triplet.function, **own[0])
        self.pair_weight: partial[PairWeights] = partial(for_pair.function, **own[1])

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.params.items())
        return f"GradientObjective({self.name!r}{settings})"

    def _weigh(self, images: Tensor, texts: Tensor, ids_N: Tensor | None) -> ObjectiveStats:
        mined = mine(images, texts, ids_N)
        if self.check_finite and not mined.finite:
            raise NonFiniteError(describe_unsound(images=images, texts=texts))
        triplets, sets = mined.triplets()
        weights = self.triplet_weight(triplets), *self.pair_weight(triplets)
        return ObjectiveStats.of(mined, weights, margin=self.margin, set_sizes=sets.sizes())


class LossObjective(GradientObjective):
    """A baseline as an objective: the gradient is that of its loss, the value and the monitoring are as of the others.

    Two pairs of one image are neither positive nor negative for each other.

    Args:
        own: what the model brings for the parameters that are `model`: for `temperature` the logarithm of its inverse,
            and `bias`. A tensor that requires a gradient gets one. If one is lacking, all of them are the defaults.
    """

    def __init__(self, name: str, *, own: Mapping[str, Tensor], check_finite: bool = True, **params: Value) -> None:
        super().__init__(pair="con", triplet="con", check_finite=check_finite)
        self.name, self.pair, self.triplet = name, name, LOSS
        values = resolve_parameters(name, LOSS, "paper", params)
        asked = [key for key, value in values.items() if value == FROM_MODEL]
        self._own = {key: own[key] for key in asked if own.keys() >= set(asked)}
        self.params = {**values, **{key: baselines[name].parameters[key] for key in asked if key not in self._own}}
        """The parameters; `model` where the model brings the value."""
        numbers = {key: value for key, value in self.params.items() if key not in self._own}
        self._loss: partial[Tensor] = partial(baselines[name].function, **numbers)

    @property
    def origin(self) -> str:
        """Where the parameters come from that could be the model's, and their values at the moment, in words."""
        values = {**self.params, **{key: float(value) for key, value in _as_taken(self._leaves()).items()}}
        trains = any(tensor.requires_grad for tensor in self._own.values())
        source = f"of the model, {'trained' if trains else 'fixed'}" if self._own else "fixed numbers"
        return f"{', '.join(f'{name} {value:.4g}' for name, value in values.items())}: {source}"

    def _leaves(self) -> dict[str, Tensor]:
        """What the model brings, in float32 and within its limit; a parameter that left the limit is brought back."""
        leaves = {key: tensor.detach().float() for key, tensor in self._own.items()}
        if "temperature" in leaves:
            scale, limit = self._own["temperature"], math.log(LARGEST_SCALE.get(self.pair, math.inf))
            leaves["temperature"] = leaves["temperature"].clamp(max=limit)
            if scale.requires_grad:
                scale.data.clamp_(max=limit)
        return leaves

    def forward_with_stats(
        self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, ObjectiveStats]:
        """See :class:`Objective`."""
        scalar, stats = super().forward_with_stats(image_emb, text_emb, ids)
        assert isinstance(stats.gradient, DenseGradient)
        for tensor, gradient in zip(self._own.values(), stats.gradient.d_own, strict=True):
            scalar = scalar + (gradient * (tensor - tensor.detach())).sum()  # adds 0, and the gradient
        return scalar, stats

    def _weigh(self, images: Tensor, texts: Tensor, ids_N: Tensor | None) -> ObjectiveStats:
        stats, own = super()._weigh(images, texts, ids_N), self._leaves()
        leaves = [rows.detach().requires_grad_() for rows in (images, texts, *own.values())]
        excluded_NN = None if ids_N is None else (ids_N[:, None] == ids_N).fill_diagonal_(False)
        with torch.enable_grad():
            given = _as_taken(dict(zip(own, leaves[2:], strict=True)))
            loss = self._loss(leaves[0] @ leaves[1].mT, excluded_NN, **given)
            d_images, d_texts, *d_own = torch.autograd.grad(loss, leaves)
        gradient = DenseGradient(images=images, texts=texts, d_images=d_images, d_texts=d_texts, d_own=tuple(d_own))
        return replace(stats, gradient=gradient, has_weights=False)


def _as_taken(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a model brings as a loss takes it: the temperature in place of the logarithm of its inverse."""
    return {key: value.neg().exp() if key == "temperature" else value for key, value in own.items()}


class StackedObjectives(Objective):
    """The objectives of C cells, as a callable on their embeddings of one batch, (C, N, D).

    Equal to each cell's `GradientObjective` but for rounding. Nothing synchronises with the device: non-finite
    embeddings do not raise, they show in `ObjectiveStats.finite`, and do not reach other cells. A weight that does not
    come with goal-sweep may use a whole batch (a mean, a rank), so it is called for each cell by itself; what it raises
    is kept in `ObjectiveStats.errors`.

    Args:
        together: evaluate a weight for all cells that use it in one call. On a CPU this is hardly faster, and the last
            bits of a cell's weights would depend on the other cells: a vector's tail rounds otherwise than the rest.
    """

    def __init__(self, objectives: Sequence[GradientObjective], *, together: bool = True) -> None:
        self._margins = torch.tensor([objective.margin for objective in objectives], dtype=torch.float64)
        triplets = [(triplet_weights[each.triplet], each.triplet_weight) for each in objectives]
        pairs = [(pair_weights[each.pair], each.pair_weight) for each in objectives]
        self._for_triplets, self._for_pairs = _groups(triplets, together), _groups(pairs, together)

    def _check(self, image_emb: Tensor, text_emb: Tensor, ids: Tensor | None) -> None:
        if len(image_emb) != len(self._margins) or text_emb.shape != image_emb.shape:
            got = f"got images {tuple(image_emb.shape)}, texts {tuple(text_emb.shape)}"
            raise ShapeError(f"{len(self._margins)} objectives need embeddings (C, N, D) of as many cells; {got}")
        super()._check(image_emb[0], text_emb[0], ids)

    def _weigh(self, images: Tensor, texts: Tensor, ids_N: Tensor | None) -> ObjectiveStats:
        mined = mine(images, texts, ids_N)
        triplet, pair_pos, pair_neg = (torch.zeros_like(mined.pos) for _ in range(3))
        set_sizes, errors = dict[str, Tensor](), dict[int, Exception]()
        _fill(self._for_triplets, mined, (triplet,), set_sizes, errors)
        _fill(self._for_pairs, mined, (pair_pos, pair_neg), set_sizes, errors)
        margin = send(self._margins.to(mined.pos.dtype), mined.pos.device)[:, None]
        weights = triplet, pair_pos, pair_neg
        stats = ObjectiveStats.of(mined, weights, margin=margin, set_sizes=set_sizes, errors=errors)
        d_images, d_texts = stats.gradient.both()  # once, for the scales of cells may differ and the norm is needed
        return replace(stats, gradient=DenseGradient(images=images, texts=texts, d_images=d_images, d_texts=d_texts))


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


def _groups(weights: Sequence[tuple[Entry[Any], partial[Any]]], together: bool) -> list[_Group]:
    """Cells by function and parameters; a weight that does not come with goal-sweep is each cell's own."""
    groups: dict[object, _Group] = {}
    for cell, (entry, call) in enumerate(weights):
        alone = not (together and entry.is_built_in)
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
