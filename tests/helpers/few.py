"""Some parameters in every run, the others where there is an hour."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], most: int = 1) -> list[Any]:
    return [
        pytest.param(*(one if isinstance(one, tuple) else [one]), marks=[pytest.mark.exhaustive] * (number >= most))
        for number, one in enumerate(values)
    ]
