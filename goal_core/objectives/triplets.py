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
        """Mean gap over the members.

        Args:
            empty: value for an anchor without members.
            count_ties: whether a member with a gap of exactly 0 counts in the denominator.

        Returns:
            Mean per anchor, shape (A,).
        """

    def mean_exp_gap(self, rate: float, *, empty: float) -> Tensor:
        """Mean of exp(rate x gap) over the members.

        Args:
            rate: factor of the gap, any sign.
            empty: value for an anchor without members.

        Returns:
            Mean per anchor, shape (A,).
        """


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


class FixedSets:
    """Relative similarities that are the same for every anchor: for plots, curls and hand-checked examples.

    Args:
        positives: similarities R of the other positives, shape (K,).
        negatives: similarities R' of the other negatives, shape (M,).
    """

    def __init__(self, pos_A: Tensor, neg_A: Tensor, positives: Tensor, negatives: Tensor) -> None:
        self._positives = _FixedSet(pos_A, positives)
        self._negatives = _FixedSet(neg_A, negatives)

    def positives(self, *, eps: float, strict: bool) -> RelativeSet:
        """The given positives, whatever the threshold."""
        return self._positives

    def negatives(self, *, eps: float, strict: bool) -> RelativeSet:
        """The given negatives, whatever the threshold."""
        return self._negatives


class _FixedSet:
    def __init__(self, selected_A: Tensor, members: Tensor) -> None:
        self._gap_AK = selected_A[:, None] - members.to(selected_A)

    @property
    def size(self) -> Tensor:
        return self._gap_AK.new_full(self._gap_AK.shape[:1], self._gap_AK.shape[1])

    def mean_gap(self, *, empty: float, count_ties: bool = True) -> Tensor:
        counted = self.size if count_ties else (self._gap_AK != 0).sum(1).to(self._gap_AK)
        return mean_or(self._gap_AK.sum(1), counted, empty)

    def mean_exp_gap(self, rate: float, *, empty: float) -> Tensor:
        return mean_or((rate * self._gap_AK).exp().sum(1), self.size, empty)


def mean_or(total: Tensor, count: Tensor, empty: float) -> Tensor:
    """``total / count``, or ``empty`` where ``count`` is 0; never a division by zero. All of one shape."""
    return (total / count.clamp(min=1)).where(count > 0, empty)
