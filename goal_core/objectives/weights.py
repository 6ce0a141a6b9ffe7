"""The weights of the grid, what they see of a batch, and the losses beside it: functions registered by name.

A triplet weight T(s_p, s_n) says how much a triplet counts, from both of its similarities (the columns of the grid);
the pair weights P+ and P- how hard a positive is pulled and a negative pushed (its rows). Parameters lie in the ranges
that the functions' annotations declare.

Baselines are contrastive losses: what pretrained two-tower models were trained with. One is written `infonce`. Its
gradient is autograd's, of a sum over the batch, as the objectives' is a sum. Its temperature is a number, or `model`:
that of the towers of `dual`, which trains as they do.

Shape suffixes in this package: N pairs in the batch, A = 2N anchors (the N images first, then the N texts),
D embedding dimensions. Higher similarity means nearer; embeddings are L2-normalised, so similarities lie in [-1, 1].
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Protocol, get_args, get_origin

from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.goal_core.basics.registry import Registry

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
    """Similarity s_n of anchor and hardest negative, shape (A,); 0, its weights ignored, where there is no negative."""
    sets: RelativeSets
    """The relative similarities, computed when a weight asks for them."""


Value = float | bool | str
"""What a parameter of an objective can be."""
FROM_MODEL: Final = "model"
"""In place of a parameter's value: that of the model itself. In an annotation: it may stand there."""

Positive = Annotated[float, Range(above=0)]
"""A number above 0, as the annotation of a parameter."""
NonNegative = Annotated[float, Range(at_least=0)]


def parameter_problem(function: Callable[..., Any], name: str, value: object) -> str:
    """What is wrong with a parameter's value, in words, or an empty string."""
    annotation = _annotation(function, name)
    if annotation is None:
        return ""
    if annotation is bool:
        return "" if isinstance(value, bool) else f"{name} must be true or false, got {value!r}"
    if get_origin(annotation) is Literal:
        allowed = get_args(annotation)
        return "" if value in allowed else f"{name} must be one of {', '.join(allowed)}; got {value!r}"
    extras = getattr(annotation, "__metadata__", ())
    if value == FROM_MODEL and FROM_MODEL in extras:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return f"{name} must be a finite number, got {value!r}"
    ranges = [extra for extra in extras if isinstance(extra, Range)]
    return next((f"{name} must be {allowed}, got {value}" for allowed in ranges if not allowed.holds(value)), "")


def _annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotation of one argument. The others are not evaluated, because naming a tensor's type would load torch."""
    written = inspect.get_annotations(function).get(name)  # none where one's own weight states no type
    return eval(written, inspect.unwrap(function).__globals__) if isinstance(written, str) else written


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


class PairWeights(NamedTuple):
    """The two pair weights of every triplet, each of shape (A,)."""

    pos: Tensor
    """P+, the pull on the positive pair."""
    neg: Tensor
    """P-, the push on the negative pair."""


pair_weights: Registry[Callable[..., PairWeights]] = Registry("pair weight")
"""Functions from the triplets of a batch to its pair weights, by name."""


@pair_weights.register("con", source="arXiv:2210.13188, P^con")
def constant(triplets: Triplets) -> PairWeights:
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


Temperature = Annotated[float, Range(above=0), FROM_MODEL]
Bias = Annotated[float, FROM_MODEL]
LARGEST_SCALE: Final = {"infonce": 100.0}
"""Of a model's 1 / temperature, by baseline, in training as at its start: CLIP has this limit, SigLIP has none."""

baselines: Registry[Callable[..., Tensor]] = Registry("baseline")
"""Losses of a batch's similarities, (N, N), and of which of them do not count, by name."""


@baselines.register("infonce", source="CLIP (Radford et al. 2021, arXiv:2103.00020), figure 3; Oord et al. 2018")
def infonce(scores_NN: Tensor, excluded_NN: Tensor | None, *, temperature: Temperature = 0.07) -> Tensor:
    """Cross entropy of finding each image's text among the batch's, and each text's image.

    Args:
        scores_NN: similarities of N images and N texts; row i belongs to column i.
        excluded_NN: pairs that are neither positive nor negative, bool; None: none.
        temperature: divides the similarities, > 0; CLIP's trains, from 0.07 to 0.01.

    Returns:
        The sum over both directions, shape ().
    """
    logits_NN = scores_NN / temperature
    if excluded_NN is not None:
        logits_NN = logits_NN.masked_fill(excluded_NN, float("-inf"))
    return logits_NN.logsumexp(0).sum() + logits_NN.logsumexp(1).sum() - 2 * logits_NN.diagonal().sum()


@baselines.register("sigmoid", source="SigLIP (Zhai et al. 2023, arXiv:2303.15343), eq. 1")
def sigmoid(
    scores_NN: Tensor, excluded_NN: Tensor | None, *, temperature: Temperature = 0.1, bias: Bias = -10.0
) -> Tensor:
    """Binary cross entropy of telling for each pair of the batch whether it belongs together.

    Args:
        scores_NN: as for :func:`infonce`, as is ``excluded_NN``.
        temperature: divides the similarities, > 0; SigLIP's trains from 0.1, and so does its bias from -10.

    Returns:
        The sum over all pairs, shape ().
    """
    logits_NN = scores_NN / temperature + bias
    losses_NN = logits_NN.logaddexp(logits_NN.new_zeros(()))
    if excluded_NN is not None:
        losses_NN = losses_NN.masked_fill(excluded_NN, 0)
    return losses_NN.sum() - logits_NN.diagonal().sum()
