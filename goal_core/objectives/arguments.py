"""The arguments of a weight function: a batch's triplets, and parameters in the ranges that its annotations declare.

Shape suffixes in this package: N pairs in the batch, A = 2N anchors (the N images first, then the N texts),
D embedding dimensions. Higher similarity means nearer; embeddings are L2-normalised, so similarities lie in [-1, 1].
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, get_args, get_origin

from goal_sweep.goal_core.basics.ranges import Range

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
