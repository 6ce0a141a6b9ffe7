"""Ranges of the objectives' parameters, which a weight function declares in its annotations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from goal_sweep.goal_core.basics.ranges import Range

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
