from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.ranges import InRange, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(InRange):
    rate: Annotated[float, Range(at_least=0, below=1)] = 0.5
    factor: Annotated[float, Range(above=0, at_most=1)] = 1.0
    units: Annotated[int | Literal["auto"], Range(at_least=1)] = "auto"


def test_numbers_at_the_ends_and_words_are_taken() -> None:
    Settings(rate=0, factor=1, units=1)


def test_every_number_out_of_range_is_named_with_its_range() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(rate=1, factor=0, units=0)
    assert str(caught.value).split("; ") == [
        "rate must be at least 0 and below 1, got 1",
        "factor must be above 0 and at most 1, got 0",
        "units must be at least 1, got 0",
    ]


def test_what_is_no_number_is_in_no_range() -> None:
    with pytest.raises(ConfigError, match="rate"):
        Settings(rate=float("nan"))
