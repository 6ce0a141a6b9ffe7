"""What to monitor of training: the statistics of a batch, and whether the embeddings have collapsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from goal_core.basics.devices import send
from goal_core.objectives.sparse_gradient import SparseGradient

QUANTILES: Final = (0.1, 0.5, 0.9)
"""Quantiles of the similarities in `ObjectiveStats.as_dict`."""
TOLERANCE: Final = 0.01
"""A hinge within this share of its collapsed value counts as collapsed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectiveStats:
    """A batch's triplets and their weights. Tensors stay on the device."""

    margin: float
    """Margin of the monitored hinge, in similarity."""
    pos: Tensor
    """s_p of the 2N anchors (images, then texts), shape (A,)."""
    neg: Tensor
    """s_n, shape (A,); 0 where there is no negative."""
    valid: Tensor
    """Whether the anchor has a negative, shape (A,), bool."""
    finite: Tensor
    """Whether all of the batch's similarities are finite, shape (), bool."""
    triplet: Tensor
    """T, shape (A,); 0 where there is no negative."""
    pair_pos: Tensor
    """P+, shape (A,)."""
    pair_neg: Tensor
    """P-, shape (A,)."""
    set_sizes: Mapping[str, Tensor]
    """Members of the relative sets the pair weight used (`pos_set`, `neg_set`), each of shape (A,)."""
    gradient: SparseGradient
    """dL/dS of the batch, before any upstream factor."""
    images: Tensor = field(repr=False)
    """The image embeddings in the dtype of the computation."""
    texts: Tensor = field(repr=False)
    """The text embeddings, likewise."""

    @property
    def hinge(self) -> Tensor:
        """Sum over both directions of max(0, margin + s_n - s_p), shape (); 2 N margin when all embeddings coincide."""
        return self._violations().sum()

    def grad_norm(self) -> Tensor:
        """Frobenius norm of the gradient with respect to both embeddings together, shape (); O(N D)."""
        d_images, d_texts = self.gradient.for_images(self.texts), self.gradient.for_texts(self.images)
        return torch.hypot(d_images.norm(), d_texts.norm())

    def numbers(self) -> tuple[list[str], Tensor]:
        """Names of K statistics, and their values on the device, shape (K,); see `named`."""
        sums = {"hinge": self.hinge, "triplets": self.valid.sum(), "grad_norm": self.grad_norm()}
        per_anchor = {
            "pos_sim": self.pos,
            "neg_sim": self.neg,
            "triplet_weight": self.triplet,
            "pos_weight": self.pair_pos,
            "neg_weight": self.pair_neg,
            "active": (self._violations() > 0).to(self.pos),
            **self.set_sizes,
        }
        return summary(sums, per_anchor, self.valid)

    def as_dict(self) -> dict[str, float]:
        """Everything as Python floats; waits for the device once.

        Returns:
            `hinge` (sum), `triplets` (anchors with a negative), `grad_norm`; and over those anchors the means
            `pos_sim`, `neg_sim`, `triplet_weight`, `pos_weight`, `neg_weight`, the share `active` within the margin,
            the quantiles `pos_sim_p10` .. `neg_sim_p90`, and, where the pair weight has sets, their mean sizes
            `pos_set`, `neg_set`. Without any triplet, only the first three.
        """
        names, numbers = self.numbers()
        return named(names, numbers.tolist())

    def _violations(self) -> Tensor:
        return violations(self.margin, self.pos, self.neg, self.valid)


def violations(margin: float | Tensor, pos_A: Tensor, neg_A: Tensor, valid_A: Tensor) -> Tensor:
    """max(0, margin + s_n - s_p) of every anchor with a negative, 0 of the others; all of one shape."""
    return torch.where(valid_A, margin + neg_A - pos_A, 0).clamp(min=0)


def summary(sums: Mapping[str, Tensor], per_anchor: Mapping[str, Tensor], valid_A: Tensor) -> tuple[list[str], Tensor]:
    """The numbers to log of a batch, or of the batches of C cells.

    Args:
        sums: numbers of a whole batch, shape () or (C,) each.
        per_anchor: values of its anchors, shape (A,) or (C, A) each; `pos_sim` and `neg_sim` come first.
        valid_A: whether the anchor has a negative, shape (A,) or (C, A), bool.

    Returns:
        K names, and their values, shape (K,) or (K, C): the sums, the means over anchors with a negative, and the
        quantiles of `pos_sim` and `neg_sim`.
    """
    # NaN marks anchors without a negative: the means and quantiles skip it, and no shape depends on the data.
    table_KA = torch.where(valid_A, torch.stack(list(per_anchor.values())), torch.nan)
    levels = send(torch.tensor(QUANTILES, dtype=table_KA.dtype), table_KA.device)
    quantiles_Q2 = torch.nanquantile(table_KA[:2], levels, dim=-1)
    numbers = torch.cat(
        (torch.stack([value.to(table_KA) for value in sums.values()]), table_KA.nanmean(-1), quantiles_Q2.flatten(0, 1))
    )
    quantiles = (f"{name}_p{level:.0%}"[:-1] for level in QUANTILES for name in ("pos_sim", "neg_sim"))
    return [*sums, *per_anchor, *quantiles], numbers


def named(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """The statistics of a batch by name; those over its triplets are left out where it has none.

    Args:
        names: of :meth:`ObjectiveStats.numbers`.
        values: likewise, on the CPU.
    """
    found = dict(zip(names, values, strict=True))
    return found if found["triplets"] else {name: found[name] for name in ("hinge", "triplets", "grad_norm")}


def at_margin(hinge: float, num_triplets: float, margin: float) -> bool:
    """Whether a batch's hinge is that of embeddings that all coincide (s_p = s_n for every triplet).

    Args:
        hinge: sum over the batch and both directions of max(0, margin + s_n - s_p).
        num_triplets: how many triplets were summed; 2 x batch size unless pairs are masked.
        margin: the hinge's margin, > 0.

    Returns:
        Whether the hinge is within 1 % of ``num_triplets * margin``; False without triplets.
    """
    collapsed = num_triplets * margin
    return collapsed > 0 and abs(hinge - collapsed) <= TOLERANCE * collapsed


class CollapseDetector:
    """Counts steps in a row whose hinge is that of collapsed embeddings.

    Args:
        margin: the hinge's margin, > 0 (`GradientObjective.margin`).
        patience: steps in a row after which training counts as collapsed; 0 never.

    Attributes:
        num_steps: collapsed steps in a row so far; set it to resume a run.
    """

    def __init__(self, *, margin: float, patience: int) -> None:
        self.margin, self.patience = margin, patience
        self.num_steps = 0

    def update(self, hinge: float, num_triplets: float) -> bool:
        """Count one step.

        Args:
            hinge: the step's hinge (`ObjectiveStats.hinge`, which is the objective's value).
            num_triplets: the step's triplets; 2 x batch size unless pairs are masked.

        Returns:
            Whether training has now been collapsed for `patience` steps.
        """
        self.num_steps = self.num_steps + 1 if at_margin(hinge, num_triplets, self.margin) else 0
        return 0 < self.patience <= self.num_steps
