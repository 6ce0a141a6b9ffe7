"""Triplet weights T(s_p, s_n): how much a triplet counts, from both of its similarities (the columns of the grid)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.objectives.arguments import NonNegative, Positive, Triplets

if TYPE_CHECKING:
    from torch import Tensor

triplet_weights: Registry[Callable[..., Tensor]] = Registry("triplet weight")
"""Functions from the triplets of a batch to a weight of each, shape (A,), by name."""


@triplet_weights.register("con", source="arXiv:2210.13188, T^con (gradient of the triplet loss with hard negatives)")
def con(triplets: Triplets, *, margin: NonNegative = 0.2, gate: bool = True) -> Tensor:
    """Constant: 1 for a triplet within the margin, 0 for one already satisfied.

    T = H(margin + s_n - s_p), with H(0) = 0 as autograd has it for the hinge.

    Args:
        margin: how much more similar the positive must be, in similarity, >= 0.
        gate: with False every triplet counts 1 (the authors' code), and the objective never stops pushing.

    Returns:
        Weight per anchor, shape (A,), 0 or 1.
    """
    if not gate:
        return triplets.pos.new_ones(triplets.pos.shape)
    return (margin + triplets.neg - triplets.pos > 0).to(triplets.pos)


@triplet_weights.register("nca", source="arXiv:2210.13188, T^nca (gradient of NT-Xent with one hard negative)")
def nca(triplets: Triplets, *, tau: Positive = 10.0) -> Tensor:
    """Sigmoid of the similarity gap: near 1 for violated triplets, near 0 for easy ones.

    T = sigmoid(tau (s_n - s_p)).

    Args:
        tau: inverse temperature, > 0.

    Returns:
        Weight per anchor, shape (A,), in (0, 1).
    """
    return (tau * (triplets.neg - triplets.pos)).sigmoid()


@triplet_weights.register("cir", source="arXiv:2210.13188, T^cir (Circle loss, Sun et al. 2020)")
def cir(triplets: Triplets, *, tau: Positive = 10.0, cir_shift: float = 0.0) -> Tensor:
    """Circle: equal weights lie on circles around the ideal triplet (s_p, s_n) = (1, 0).

    T = sigmoid(tau (s_n^2 - s_p (2 - s_p) + cir_shift)) = sigmoid(tau (s_n^2 + (1 - s_p)^2 - r^2)),
    with r^2 = 1 - cir_shift: triplets outside the circle of radius r count more than 1/2.

    Args:
        tau: inverse temperature, > 0.
        cir_shift: 0 in the paper, 0.5 in the authors' code (Circle loss with margin m has 1 - 2 m^2).

    Returns:
        Weight per anchor, shape (A,), in (0, 1).
    """
    pos_A, neg_A = triplets.pos, triplets.neg
    return (tau * (neg_A.square() - pos_A * (2 - pos_A) + cir_shift)).sigmoid()
