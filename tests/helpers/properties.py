"""Hypothesis where it is installed; elsewhere, as on a borrowed GPU machine, what it would drive is skipped.

So the other tests of a file run where only goal_core's dependencies and pytest are.
"""

from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

if TYPE_CHECKING:
    from hypothesis import given, settings
    from hypothesis import strategies as st
else:
    try:
        from hypothesis import given, settings
        from hypothesis import strategies as st
    except ModuleNotFoundError:
        st = MagicMock()

        def given(*values: Any, **named: Any) -> Any:
            return pytest.mark.skip(reason="needs hypothesis")

        def settings(**named: Any) -> Any:
            return lambda test: test

    else:
        settings.register_profile("busy machine", deadline=None)  # a test says nothing about times
        settings.load_profile("busy machine")


__all__ = ["given", "settings", "st"]
