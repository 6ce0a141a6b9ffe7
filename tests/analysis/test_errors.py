"""An error's first line is there even when its message is not."""

from __future__ import annotations

import pytest

from analysis.errors import first_line


@pytest.mark.parametrize(
    ("message", "line"), [("one\ntwo", "one"), ("\n  two\n", "two"), ("", "OSError"), (" \n", "OSError")]
)
def test_the_first_line_of_an_error_is_never_empty(message: str, line: str) -> None:
    assert first_line(OSError(message)) == line
