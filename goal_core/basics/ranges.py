"""Ranges of numbers, which settings and parameters declare in their annotations."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, get_type_hints

from goal_sweep.goal_core.basics.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a setting may have, as in ``Annotated[float, Range(above=0)]``."""

    at_least: float = -inf
    above: float = -inf
    below: float = inf
    at_most: float = inf

    def __str__(self) -> str:
        limits = {"at least": self.at_least, "above": self.above, "below": self.below, "at most": self.at_most}
        return " and ".join(f"{words} {limit:,.10g}" for words, limit in limits.items() if abs(limit) < inf)

    def __get_pydantic_json_schema__(self, of_type: Any, written: Any) -> Any:
        """The range in a JSON schema, for editors and for the list of settings."""
        limits = {"minimum": self.at_least, "exclusiveMinimum": self.above}
        limits |= {"exclusiveMaximum": self.below, "maximum": self.at_most}
        return written(of_type) | {word: limit for word, limit in limits.items() if abs(limit) < inf}

    def holds(self, value: float) -> bool:
        """Whether ``value`` is in the range."""
        return self.at_least <= value <= self.at_most and self.above < value < self.below


class InRange:
    """Base of a dataclass of settings that checks itself.

    Its numbers must be in the ranges that their annotations declare; a field that holds text is not looked at.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        """Raise a `ConfigError` that lists everything that is wrong."""
        kind: Any = type(self)
        numbers = [
            f"{name} must be {allowed}, got {value}"
            for name, allowed in _ranges(kind).items()
            if isinstance(value := getattr(self, name), int | float) and not allowed.holds(value)
        ]
        if problems := [*numbers, *self.problems()]:
            raise ConfigError(*problems)

    def problems(self) -> Iterator[str]:
        """What else is wrong, in words: settings that do not go together."""
        yield from ()


@cache
def _ranges(kind: Any) -> dict[str, Range]:
    hints = get_type_hints(kind, include_extras=True).items()
    extras = ((name, extra) for name, hint in hints for extra in getattr(hint, "__metadata__", ()))
    return {name: extra for name, extra in extras if isinstance(extra, Range)}
