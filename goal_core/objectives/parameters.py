"""Ranges of the objectives' parameters, which a weight function declares in its annotations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

Value = float | bool | str
"""What a parameter of an objective can be."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of a number, as in ``Annotated[float, Bound(0.0)]``."""

    low: float
    inclusive: bool = False

    def __str__(self) -> str:
        return f"{'at least' if self.inclusive else 'above'} {self.low:g}"

    def holds(self, value: float) -> bool:
        """Whether ``value`` is within the bound."""
        return value >= self.low if self.inclusive else value > self.low


Positive = Annotated[float, Bound(0.0)]
NonNegative = Annotated[float, Bound(0.0, inclusive=True)]


def parameter_problem(function: Callable[..., Any], name: str, value: object) -> str:
    """What is wrong with a parameter's value, in words, or an empty string.

    Args:
        function: the weight function that takes the parameter.
        name: one of its keyword-only arguments.
        value: the value a user gave.
    """
    annotation = _annotation(function, name)
    if annotation is bool:
        return "" if isinstance(value, bool) else f"{name} must be true or false, got {value!r}"
    if get_origin(annotation) is Literal:
        allowed = get_args(annotation)
        return "" if value in allowed else f"{name} must be one of {', '.join(allowed)}; got {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return f"{name} must be a finite number, got {value!r}"
    bounds = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, Bound)]
    return next((f"{name} must be {bound}, got {value}" for bound in bounds if not bound.holds(value)), "")


def _annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotation of one argument. The others are not evaluated, because naming a tensor's type would load torch."""
    written = inspect.get_annotations(function)[name]
    return eval(written, inspect.unwrap(function).__globals__) if isinstance(written, str) else written
