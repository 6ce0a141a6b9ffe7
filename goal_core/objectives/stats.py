"""What to monitor of training: a batch's statistics, and whether embeddings are unit vectors or have collapsed."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Final, Self

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.objectives.mining import MinedBatch
from goal_sweep.goal_core.objectives.sparse_gradient import Gradient

UNIT_TOLERANCE: Final = 0.01
"""How far the length of an embedding may be from 1; half precision rounds within it."""


def no_unit_vectors(emb: Tensor) -> Tensor:
    """Which rows (..., D) are not of unit length, or not finite: (...), bool."""
    off: Tensor = ~((torch.linalg.vector_norm(emb.float(), dim=-1) - 1).abs() <= UNIT_TOLERANCE)
    return off


def describe_unsound(**embeddings: Tensor) -> str:
    """What is not finite, or not of unit length, in embeddings (N, D), in words; they are called by their keywords."""

    def rows(bad: Mapping[str, Tensor]) -> str:
        counts = {kind: int(own.sum()) for kind, own in bad.items()}
        return " and ".join(f"{count} of {len(embeddings[kind])} {kind}" for kind, count in counts.items() if count)

    if where := rows({kind: (~emb.isfinite()).any(1) for kind, emb in embeddings.items()}):
        return f"NaN or infinity in the embeddings of {where}"
    off = {kind: no_unit_vectors(emb) for kind, emb in embeddings.items()}
    lengths = torch.linalg.vector_norm(torch.cat([emb[off[kind]].float() for kind, emb in embeddings.items()]), dim=1)
    worst = float(lengths[(lengths - 1).abs().argmax()])
    why = "they are not L2-normalised, or what is normalised overflows or is 0"
    return f"the embeddings of {rows(off)} are not of unit length (one is {worst:.3g} long): {why}"


def warn_of_lengths(image_emb: Tensor, text_emb: Tensor, consequence: str) -> None:
    """Warn the caller's caller if rows (..., D) are not of unit length, and of the consequence."""
    for kind, emb in (("image", image_emb), ("text", text_emb)):
        off = no_unit_vectors(emb)
        if bool(off.any()):
            of = f"{int(off.sum())} of {off.numel()} {kind} embeddings"
            warnings.warn(f"{of} are not of unit length: {consequence}", stacklevel=3)


SETS: Final = ("pos_set", "neg_set")
"""Names of the relative sets' sizes among the statistics; NaN of one of several cells whose pair weight used none."""
QUANTILES: Final = (0.1, 0.5, 0.9)
"""Quantiles of the similarities in `ObjectiveStats.numbers`."""
TOLERANCE: Final = 0.01
"""A hinge within this share of its collapsed value counts as collapsed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectiveStats:
    """A batch's triplets, their weights and its gradient; of the batches of C cells, with C in front of every shape.

    Tensors stay on the device. What is derived from them is computed only when asked for.
    """

    pos: Tensor
    neg: Tensor
    valid: Tensor
    finite: Tensor
    """These are as of `MinedBatch`."""
    violations: Tensor
    """max(0, margin + s_n - s_p) of every anchor with a negative, 0 of the others, shape (A,)."""
    triplet: Tensor
    """T, shape (A,); 0 where there is no negative."""
    pair_pos: Tensor
    pair_neg: Tensor
    """P+ and P-, shape (A,)."""
    set_sizes: Mapping[str, Tensor]
    """Members of the relative sets `pos_set`, `neg_set`, shape (A,) each; NaN of a cell whose pair weight used none."""
    gradient: Gradient
    """Before any upstream factor."""
    has_weights: bool = True
    """Whether the gradient is that of the weights; False of a baseline, whose triplets have none."""
    errors: Mapping[int, Exception] = field(default_factory=dict)
    """What the weights of a cell raised, or why they do not fit, by its number; the gradient of such a cell is 0."""

    @classmethod
    def of(
        cls, mined: MinedBatch, weights: tuple[Tensor, Tensor, Tensor], *, margin: float | Tensor, **given: Any
    ) -> Self:
        """The statistics of a batch whose triplets have the weights T, P+ and P-, shape (A,) each, or (C, A).

        Args:
            margin: of the monitored hinge, in similarity; of C cells, shape (C, 1).
        """
        pair_pos, pair_neg = weights[1:]
        triplet = torch.where(mined.valid, weights[0], 0)
        return cls(
            pos=mined.pos,
            neg=mined.neg,
            valid=mined.valid,
            violations=torch.where(mined.valid, margin + mined.neg - mined.pos, 0).clamp(min=0),
            finite=mined.finite,
            triplet=triplet,
            pair_pos=pair_pos,
            pair_neg=pair_neg,
            gradient=mined.gradient(triplet, pair_pos, pair_neg),
            **given,
        )

    @property
    def sound(self) -> Tensor:
        """Whether all similarities are finite and all embeddings unit vectors, shape (), bool."""
        rows = self.gradient.images, self.gradient.texts
        return self.finite & ~(no_unit_vectors(rows[0]) | no_unit_vectors(rows[1])).any(-1)

    @property
    def hinge(self) -> Tensor:
        """Sum over both directions of max(0, margin + s_n - s_p), shape (); 2 N margin when all embeddings coincide."""
        return self.violations.sum(-1)

    def numbers(self) -> tuple[list[str], Tensor]:
        """Names of K statistics, and their values on the device, shape (K,) or (K, C); see `named`.

        They are `hinge` (sum), `triplets` (anchors with a negative), `grad_norm`; and over those anchors the means
        `pos_sim`, `neg_sim`, `triplet_weight`, `pos_weight`, `neg_weight`, the share `active` within the margin, the
        mean sizes `pos_set`, `neg_set`, where weights have sets, and the quantiles `pos_sim_p10` .. `neg_sim_p90`.
        """
        sums = {"hinge": self.hinge, "triplets": self.valid.sum(-1), "grad_norm": self.gradient.norm()}
        per_anchor = {"pos_sim": self.pos, "neg_sim": self.neg}
        if self.has_weights:
            per_anchor |= {"triplet_weight": self.triplet, "pos_weight": self.pair_pos, "neg_weight": self.pair_neg}
        per_anchor |= {"active": (self.violations > 0).to(self.pos), **self.set_sizes}
        # NaN marks anchors without a negative: the means and quantiles skip it, and no shape depends on the data.
        table_KA = torch.where(self.valid, torch.stack(list(per_anchor.values())), torch.nan)
        levels = send(torch.tensor(QUANTILES, dtype=table_KA.dtype), table_KA.device)
        quantiles_Q2 = torch.nanquantile(table_KA[:2], levels, dim=-1)
        totals = torch.stack([value.to(table_KA) for value in sums.values()])
        quantiles = (f"{name}_p{level:.0%}"[:-1] for level in QUANTILES for name in ("pos_sim", "neg_sim"))
        return [*sums, *per_anchor, *quantiles], torch.cat((totals, table_KA.nanmean(-1), quantiles_Q2.flatten(0, 1)))


def named(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """The statistics of a batch by name: without sets that its pair weight did not use, or those of no triplets."""
    statistics = dict(zip(names, values, strict=True))
    if not statistics["triplets"]:
        return {name: statistics[name] for name in ("hinge", "triplets", "grad_norm")}
    return {name: value for name, value in statistics.items() if name not in SETS or not isnan(value)}


def is_collapsed(hinge: float, num_triplets: float, margin: float) -> bool:
    """Whether a hinge is within 1 % of that of embeddings that all coincide, ``num_triplets * margin``."""
    collapsed = num_triplets * margin
    return collapsed > 0 and abs(hinge - collapsed) <= TOLERANCE * collapsed
