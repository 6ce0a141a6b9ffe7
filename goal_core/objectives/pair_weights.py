"""Pair weights P+ and P-: how hard a positive is pulled and a negative pushed (the rows of the grid)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.objectives.arguments import NonNegative, Positive, Triplets

if TYPE_CHECKING:
    from torch import Tensor


class PairWeights(NamedTuple):
    """The two pair weights of every triplet, each of shape (A,)."""

    pos: Tensor
    """P+, the pull on the positive pair."""
    neg: Tensor
    """P-, the push on the negative pair."""


pair_weights: Registry[Callable[..., PairWeights]] = Registry("pair weight")
"""Functions from the triplets of a batch to its pair weights, by name."""


@pair_weights.register("con", source="arXiv:2210.13188, P^con")
def con(triplets: Triplets) -> PairWeights:
    """Constant: P+ = P- = 1."""
    ones_A = triplets.pos.new_ones(triplets.pos.shape)
    return PairWeights(ones_A, ones_A)


@pair_weights.register("lin", source="arXiv:2210.13188, P^lin (Circle loss, Sun et al. 2020)")
def lin(triplets: Triplets) -> PairWeights:
    """Linear: P+ = 1 - s_p, P- = s_n. A negative of negative similarity is pulled back towards 0, not clamped.

    Returns:
        P+ in [0, 2] and P- in [-1, 1].
    """
    return PairWeights(1 - triplets.pos, triplets.neg)


@pair_weights.register("sig", source="arXiv:2210.13188, P^sig (binomial deviance, Yi et al. 2014)")
def sig(triplets: Triplets, *, alpha: Positive = 2.0, beta: Positive = 10.0, lam: float = 0.5) -> PairWeights:
    """Sigmoid: P+ = sigmoid(-alpha (s_p - lambda)), P- = sigmoid(beta (s_n - lambda)).

    Args:
        alpha: steepness for positives, > 0.
        beta: steepness for negatives, > 0.
        lam: the similarity lambda at which both weights are 1/2.

    Returns:
        Both in (0, 1).
    """
    return PairWeights(
        (-alpha * (triplets.pos - lam)).sigmoid(),
        (beta * (triplets.neg - lam)).sigmoid(),
    )


@pair_weights.register("lin-ms", source="arXiv:2210.13188, P^lin-ms")
def lin_ms(triplets: Triplets, *, eps: NonNegative = 0.1, strict: bool = True, count_ties: bool = True) -> PairWeights:
    """Linear with relative similarity: P+ = (1 - m+)(1 - s_p), P- = (1 + m-) s_n.

    m+ is the mean of s_p - R over the set P, m- the mean of s_n - R' over the set N; 0 over an empty set.

    Args:
        eps: slack of both sets' thresholds, in similarity, >= 0.
        strict: the thresholds are < and > (paper); with False <= and >= (authors' code).
        count_ties: a member with difference 0 counts in the mean's denominator (the authors' code leaves it out).

    Returns:
        P+ in [-2, 6] (below 0 only where m+ > 1) and P- in [-3, 3].
    """
    pos_gap_A = triplets.sets.positives(eps=eps, strict=strict).mean_gap(empty=0.0, count_ties=count_ties)
    neg_gap_A = triplets.sets.negatives(eps=eps, strict=strict).mean_gap(empty=0.0, count_ties=count_ties)
    return PairWeights((1 - pos_gap_A) * (1 - triplets.pos), (1 + neg_gap_A) * triplets.neg)


@pair_weights.register("sig-ms", source="arXiv:2210.13188, P^sig-ms (after multi-similarity, Wang et al. 2019)")
def sig_ms(
    triplets: Triplets,
    *,
    alpha: Positive = 2.0,
    beta: Positive = 10.0,
    lam: float = 0.5,
    eps: NonNegative = 0.1,
    strict: bool = True,
    empty: Literal["neutral", "zero"] = "neutral",
) -> PairWeights:
    """Sigmoid with relative similarity: P+ = 1/(m+ + e^(alpha (s_p - lambda))), P- = 1/(m- + e^(-beta (s_n - lambda))).

    m+ is the mean of e^(alpha (s_p - R)) over the set P, m- the mean of e^(-beta (s_n - R')) over the set N.
    With m = 1 the weight is that of `sig`.

    Args:
        alpha: steepness for positives, > 0.
        beta: steepness for negatives, > 0.
        lam: the similarity lambda at which both weights are 1/2 when m = 1.
        eps: slack of both sets' thresholds, in similarity, >= 0.
        strict: the thresholds are < and > (paper); with False <= and >= (authors' code).
        empty: m over an empty set, which the paper does not define: `neutral` is 1 (the weight of `sig`), `zero` is 0
            (authors' code; the weight then grows to e^(beta (1 - lambda)), 148 with the defaults).

    Returns:
        P+ in (0, e^(alpha (1 + lambda))) and P- in (0, e^(beta (1 - lambda))).
    """
    neutral = 1.0 if empty == "neutral" else 0.0
    m_pos_A = triplets.sets.positives(eps=eps, strict=strict).mean_exp_gap(alpha, empty=neutral)
    m_neg_A = triplets.sets.negatives(eps=eps, strict=strict).mean_exp_gap(-beta, empty=neutral)
    return PairWeights(
        1 / (m_pos_A + (alpha * (triplets.pos - lam)).exp()),
        1 / (m_neg_A + (-beta * (triplets.neg - lam)).exp()),
    )
