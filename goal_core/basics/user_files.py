"""What a user's files hold, as bytes, text and JSON, or in one line what is wrong with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from goal_sweep.goal_core.basics.errors import DataError, MissingDataError, first_line

_LONE = re.compile("[\ud800-\udfff]")
"""Half of a character, which UTF-8 lacks: of an escape in JSON, or of the name of a file."""


def content_of(path: Path) -> bytes:
    """The content of a file.

    Raises:
        DataError: it is missing, or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {first_line(error)}") from error


def text_in(content: bytes, where: object) -> str:
    """Content as text, without the mark that some programs write before it; a `DataError` names the faulty line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}:{line} is not UTF-8 text") from error


def json_in(content: bytes, where: object) -> object:
    """Content as JSON; a `DataError` says where it is none."""
    try:
        return json.loads(text_in(content, where))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where} is not valid JSON: {error}") from error


def is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can hold."""
    return isinstance(value, str) and (value.isascii() or not _LONE.search(value))
