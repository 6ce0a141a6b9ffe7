"""What to monitor of training: the statistics of a batch, and whether the embeddings have collapsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from goal_core.basics.devices import send
from goal_core.objectives.mining import SparseGradient

QUANTILES: Final = (0.1, 0.5, 0.9)
"""Quantiles of the similarities in `ObjectiveStats.as_dict`."""
TOLERANCE: Final = 0.01
"""A hinge within this share of its collapsed value counts as collapsed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripletStats:
    """A batch's triplets and their weights; of the batches of C cells, with C in front of every shape.

    Tensors stay on the device.
    """

    margin: float | Tensor
    """Margin of the monitored hinge, in similarity; of C cells, shape (C, 1)."""
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
    """Members of the relative sets that the pair weight used (`pos_set`, `neg_set`), shape (A,) each; of C cells, NaN
    where the pair weight used none."""

    @property
    def violations(self) -> Tensor:
        """max(0, margin + s_n - s_p) of every anchor with a negative, 0 of the others, shape (A,)."""
        return torch.where(self.valid, self.margin + self.neg - self.pos, 0).clamp(min=0)

    @property
    def hinge(self) -> Tensor:
        """Sum over both directions of max(0, margin + s_n - s_p), shape (); 2 N margin when all embeddings coincide."""
        return self.violations.sum(-1)

    def grad_norm(self) -> Tensor:
        """Frobenius norm of the gradient with respect to both embeddings together, shape ()."""
        raise NotImplementedError

    def weights(self) -> dict[str, Tensor]:
        """T, P+ and P- by their names in the statistics, shape (A,) each."""
        return {"triplet_weight": self.triplet, "pos_weight": self.pair_pos, "neg_weight": self.pair_neg}

    def numbers(self) -> tuple[list[str], Tensor]:
        """Names of K statistics, and their values on the device, shape (K,) or (K, C); see `named`."""
        sums = {"hinge": self.hinge, "triplets": self.valid.sum(-1), "grad_norm": self.grad_norm()}
        per_anchor = {
            "pos_sim": self.pos,
            "neg_sim": self.neg,
            **self.weights(),
            "active": (self.violations > 0).to(self.pos),
            **self.set_sizes,
        }
        return _summary(sums, per_anchor, self.valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectiveStats(TripletStats):
    """The statistics of one batch."""

    gradient: SparseGradient
    """dL/dS of the batch, before any upstream factor."""
    images: Tensor = field(repr=False)
    """The image embeddings in the dtype of the computation."""
    texts: Tensor = field(repr=False)
    """The text embeddings, likewise."""
    norm: Tensor | None = None
    """Norm of the gradient of a baseline, shape (), whose triplets have no weights."""

    def weights(self) -> dict[str, Tensor]:
        """As of all statistics; none of a baseline."""
        return TripletStats.weights(self) if self.norm is None else {}

    def grad_norm(self) -> Tensor:
        """Frobenius norm of the gradient with respect to both embeddings together, shape (); O(N D)."""
        if self.norm is not None:
            return self.norm
        d_images, d_texts = self.gradient.for_images(self.texts), self.gradient.for_texts(self.images)
        return torch.hypot(d_images.norm(), d_texts.norm())

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


def _summary(sums: Mapping[str, Tensor], per_anchor: Mapping[str, Tensor], valid_A: Tensor) -> tuple[list[str], Tensor]:
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
        names: of :meth:`TripletStats.numbers`.
        values: likewise, on the CPU.
    """
    statistics = dict(zip(names, values, strict=True))
    kept = names if statistics["triplets"] else ("hinge", "triplets", "grad_norm")
    return {name: statistics[name] for name in kept}


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
        """Count one step, collapsed if its hinge is within 1 % of ``num_triplets * margin``.

        Args:
            hinge: the step's hinge (`ObjectiveStats.hinge`, which is the objective's value).
            num_triplets: the step's triplets; 2 x batch size unless pairs are masked.

        Returns:
            Whether training has now been collapsed for `patience` steps.
        """
        collapsed = num_triplets * self.margin
        is_collapsed = collapsed > 0 and abs(hinge - collapsed) <= TOLERANCE * collapsed
        self.num_steps = self.num_steps + 1 if is_collapsed else 0
        return 0 < self.patience <= self.num_steps
