from __future__ import annotations

import pytest

from goal_sweep.goal_core.basics.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("\none\ntwo"), "one"), (ValueError(), "ValueError"), (EOFError(" \n"), "EOFError")],
)
def test_every_error_has_a_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line
