"""What a weight function sees: the similarities of a batch's triplets.

Shape suffixes in this package: N pairs in the batch, A = 2N anchors (the N images first, then the N texts),
D embedding dimensions. Higher similarity means nearer; embeddings are L2-normalised, so similarities lie in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class RelativeSet(Protocol):
    """The other pairs that one anchor's selected pair is compared with; one set per anchor.

    A *gap* is the similarity of the selected pair minus that of a member.
    """

    @property
    def size(self) -> Tensor:
        """Members per anchor, shape (A,), floating point."""

    def mean_gap(self, *, empty: float, count_ties: bool = True) -> Tensor:
        """Mean gap over the members of each anchor, shape (A,), or ``empty`` where it has none.

        Args:
            count_ties: whether a member with a gap of exactly 0 counts in the denominator.
        """

    def mean_exp_gap(self, rate: float, *, empty: float) -> Tensor:
        """Mean of exp(rate x gap) over the members of each anchor, shape (A,), or ``empty`` where it has none."""


class RelativeSets(Protocol):
    """The sets P and N of the paper (its unnumbered equations after P^sig)."""

    def positives(self, *, eps: float, strict: bool) -> RelativeSet:
        """The set P: positive pairs of *other* anchors in the batch that are less similar than s_n + eps."""

    def negatives(self, *, eps: float, strict: bool) -> RelativeSet:
        """The set N: other negatives of the anchor, more similar than the batch's smallest s_p - eps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triplets:
    """The 2N triplets of a batch, each an anchor, its positive and its hardest negative. Nothing carries a gradient."""

    pos: Tensor
    """Similarity s_p of anchor and positive, shape (A,)."""
    neg: Tensor
    """Similarity s_n of anchor and hardest negative, shape (A,); 0 where the anchor has no negative, and its weights
    are then ignored."""
    sets: RelativeSets
    """The relative similarities, computed when a weight asks for them."""
